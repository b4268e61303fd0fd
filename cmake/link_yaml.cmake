# link_yaml(target): makes an imported target link yaml-cpp. Used by the build and by the installed
# package, for a library must be looked for on the machine where it is linked.
#
# A program gets the archive and then runs where no libyaml-cpp.so is installed. A shared library
# gets the shared one, because the archives of distributions are not position independent.
function(link_yaml target)
    find_library(AXLE_YAML yaml-cpp)
    find_library(AXLE_YAML_ARCHIVE libyaml-cpp.a)
    mark_as_advanced(AXLE_YAML AXLE_YAML_ARCHIVE)
    if(NOT AXLE_YAML)
        message(FATAL_ERROR "axle: yaml-cpp not found: install libyaml-cpp-dev")
    endif()
    set(library ${AXLE_YAML})
    if(AXLE_YAML_ARCHIVE)
        set(program $<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>)
        set(library $<IF:${program},${AXLE_YAML_ARCHIVE},${AXLE_YAML}>)
    endif()
    target_link_libraries(${target} INTERFACE ${library})
endfunction()
