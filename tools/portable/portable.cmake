# SPDX-License-Identifier: Apache-2.0
# For wheels: links for glibc 2.28, with copies of libstdc++ and of most libraries that no other library sees.
# GRADMON_PORTABLE is the directory that tools/portable/libraries makes.
function(gradmon_link_instead target)
  set_property(TARGET ${target} PROPERTY INTERFACE_LINK_LIBRARIES ${ARGN})
endfunction()
gradmon_link_instead(PkgConfig::ZMQ ${GRADMON_PORTABLE}/libzmq.a -l:libsodium.a)
gradmon_link_instead(PkgConfig::RE2 ${GRADMON_PORTABLE}/libre2.a)
gradmon_link_instead(PkgConfig::SODIUM -l:libsodium.a)
gradmon_link_instead(PkgConfig::SQLITE -l:libsqlite3.a)
gradmon_link_instead(PkgConfig::ZSTD ${GRADMON_PORTABLE}/libzstd.a)
gradmon_link_instead(spdlog::spdlog_header_only fmt::fmt-header-only)
set(GRADMON_SPDLOG spdlog::spdlog_header_only)
set_target_properties(protobuf::libprotobuf-lite PROPERTIES IMPORTED_LOCATION_RELEASE ${GRADMON_PORTABLE}/libprotobuf-lite.a)

# All of libstdc++ before torch's libraries: those export parts of an older one, to which ours would be bound.
set(program $<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>)
target_link_options(gradmon_options INTERFACE
  -static-libstdc++ -Wl,--whole-archive,-l:libstdc++.a,--no-whole-archive ${GRADMON_PORTABLE}/newer_functions.o
  "$<IF:${program},${GRADMON_PORTABLE}/program_start.o;-Wl$<COMMA>--wrap=__libc_start_main,\
${GRADMON_PORTABLE}/shared_exceptions.o;${GRADMON_PORTABLE}/libexceptions.so;-Wl$<COMMA>--wrap=__cxa_get_globals$<COMMA>--wrap=__cxa_get_globals_fast>"
  -L${GRADMON_PORTABLE} -Wl,--push-state,--no-as-needed,-lpthread,-ldl,-lrt,--pop-state -Wl,--exclude-libs,ALL,--gc-sections,--allow-shlib-undefined)
set_property(TARGET gradmon_options PROPERTY INTERFACE_LINK_DEPENDS
  ${GRADMON_PORTABLE}/newer_functions.o ${GRADMON_PORTABLE}/program_start.o ${GRADMON_PORTABLE}/shared_exceptions.o)
