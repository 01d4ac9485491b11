// SPDX-License-Identifier: Apache-2.0
// A wheel's extension has a libstdc++ of its own, hidden; torch has the system's. The two keep one list of
// the caught exceptions and one count of those in flight: the system's. With a count each, an exception that
// torch throws and gradmon catches would stay in flight for torch (std::uncaught_exceptions()).
extern "C" {
void* system_globals();
void* system_globals_fast();
asm(".symver system_globals, __cxa_get_globals@CXXABI_1.3");
asm(".symver system_globals_fast, __cxa_get_globals_fast@CXXABI_1.3");

// ld --wrap binds the calls of __cxa_get_globals to it.
void* __wrap___cxa_get_globals() { return system_globals(); }
void* __wrap___cxa_get_globals_fast() { return system_globals_fast(); }
}
