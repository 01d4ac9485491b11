# SPDX-License-Identifier: Apache-2.0
# Finds the torch of a Python interpreter, from the Python index or from Debian: target gradmon_torch.
set(Python_EXECUTABLE /usr/bin/python3 CACHE FILEPATH "The Python whose torch gradmon is built for")

execute_process(
  COMMAND ${Python_EXECUTABLE} -c "import importlib.util as u; print(*u.find_spec('torch').submodule_search_locations)"
  OUTPUT_VARIABLE GRADMON_TORCH_PACKAGE OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(NOT GRADMON_TORCH_PACKAGE STREQUAL GRADMON_FOUND_TORCH_PACKAGE)  # Forget what was found for another one.
  foreach(found TORCH_LIBRARY c10_LIBRARY kineto_LIBRARY GRADMON_TORCH_PYTHON_LIBRARY Torch_DIR Caffe2_DIR OpenMP_gomp_LIBRARY)
    unset(${found} CACHE)
  endforeach()
  set(GRADMON_FOUND_TORCH_PACKAGE ${GRADMON_TORCH_PACKAGE} CACHE INTERNAL "")
endif()
if(EXISTS ${GRADMON_TORCH_PACKAGE}/share/cmake/Torch)
  # A wheel. Not by its own TorchConfig.cmake, which asks for more than gradmon does: of a torch for CUDA it
  # wants the CUDA toolkit; and it would mix in Debian's protobuf and torch where those are installed.
  set(Torch_DIR ${GRADMON_TORCH_PACKAGE}/share/cmake/Torch)
  set(TORCH_INSTALL_PREFIX ${GRADMON_TORCH_PACKAGE})
  set(TORCH_INCLUDE_DIRS ${GRADMON_TORCH_PACKAGE}/include ${GRADMON_TORCH_PACKAGE}/include/torch/csrc/api/include)
  set(TORCH_LIBRARY ${GRADMON_TORCH_PACKAGE}/lib/libtorch.so)
  set(TORCH_LIBRARIES ${TORCH_LIBRARY} ${GRADMON_TORCH_PACKAGE}/lib/libtorch_cpu.so ${GRADMON_TORCH_PACKAGE}/lib/libc10.so)
  # Not found by name: Debian's libtorch-dev has a library of this name, which is found before a wheel's.
  set(GRADMON_TORCH_PYTHON_LIBRARY ${GRADMON_TORCH_PACKAGE}/lib/libtorch_python.so CACHE FILEPATH "" FORCE)
  file(STRINGS ${Torch_DIR}/TorchConfig.cmake TORCH_CXX_FLAGS REGEX "_GLIBCXX_USE_CXX11_ABI=")
  if(EXISTS ${GRADMON_TORCH_PACKAGE}/lib/libgomp.so.1)  # A process has one OpenMP.
    set(OpenMP_gomp_LIBRARY ${GRADMON_TORCH_PACKAGE}/lib/libgomp.so.1 CACHE FILEPATH "" FORCE)
  endif()
else()
  find_package(Torch QUIET)
  if(NOT Torch_FOUND)
    message(FATAL_ERROR "${Python_EXECUTABLE} has no torch: install it there, or pass -DPython_EXECUTABLE=...")
  endif()
  find_library(GRADMON_TORCH_PYTHON_LIBRARY torch_python PATHS ${TORCH_INSTALL_PREFIX}/lib)
endif()
if(TORCH_CXX_FLAGS MATCHES "_GLIBCXX_USE_CXX11_ABI=0")
  message(FATAL_ERROR "the torch of ${Python_EXECUTABLE} was built with g++'s old ABI, unlike the libraries of "
    "Debian. torch's wheels have the new one since 2.7.")
endif()

# The headers' version; Debian's Python package may say another.
foreach(header torch/headeronly/version.h torch/version.h)
  foreach(directory ${TORCH_INCLUDE_DIRS})
    if(EXISTS ${directory}/${header} AND NOT GRADMON_TORCH_VERSION)
      file(STRINGS ${directory}/${header} lines REGEX "^#define TORCH_VERSION_(MAJOR|MINOR|PATCH) ")
      string(REGEX MATCHALL "[0-9]+" GRADMON_TORCH_VERSION "${lines}")
      string(REPLACE ";" "." GRADMON_TORCH_VERSION "${GRADMON_TORCH_VERSION}")
    endif()
  endforeach()
endforeach()
message(STATUS "torch ${GRADMON_TORCH_VERSION} of ${Python_EXECUTABLE}")

# NDEBUG, as torch was built with it: the layout of its classes depends on that. SYSTEM: no
# warnings from its headers.
add_library(gradmon_torch INTERFACE)
target_include_directories(gradmon_torch SYSTEM INTERFACE ${TORCH_INCLUDE_DIRS})
# libstdc++ first: torch's libraries export parts of an older one (std::filesystem), to which ours would be bound.
target_link_libraries(gradmon_torch INTERFACE stdc++ ${TORCH_LIBRARIES})
target_compile_definitions(gradmon_torch INTERFACE NDEBUG)
if(GRADMON_TORCH_VERSION VERSION_GREATER_EQUAL 2.14)
  target_compile_features(gradmon_torch INTERFACE cxx_std_20)
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    # All are false alarms of std::string in C++20: GCC bug 105651.
    target_compile_options(gradmon_torch INTERFACE -Wno-restrict -Wno-stringop-overflow -Wno-array-bounds)
  endif()
endif()
# What some of the libraries beside it ask for: a precompiled header wants the same everywhere.
target_compile_options(gradmon_torch INTERFACE -pthread ${RE2_CFLAGS_OTHER})
