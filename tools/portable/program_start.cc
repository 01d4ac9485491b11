// SPDX-License-Identifier: Apache-2.0
// The start of a program. That of glibc 2.34 and later leaves it to libc to call the constructors of static
// objects; libc before 2.34 calls the function that the program passes instead.
namespace {
using Constructor = void (*)(int, char**, char**);
}

extern "C" {
using Main = int (*)(int, char**, char**);
extern Constructor __init_array_start[], __init_array_end[];
void _init();
int __real___libc_start_main(Main main, int argc, char** argv, Constructor init, void (*fini)(),
                             void (*rtld_fini)(), void* stack);

static void construct(int argc, char** argv, char** environment) {
  _init();
  for (Constructor* each = __init_array_start; each != __init_array_end; ++each)
    (*each)(argc, argv, environment);
}

// ld --wrap binds _start's call to it. The dynamic loader calls the destructors.
int __wrap___libc_start_main(Main main, int argc, char** argv, Constructor, void (*)(), void (*rtld_fini)(),
                             void* stack) {
  return __real___libc_start_main(main, argc, argv, construct, nullptr, rtld_fini, stack);
}
}
