# axle::kernels: the target for programs that use only the kernels (<axle/kernels/...>) and not
# Tensor. It links only the thread library, and CUDA in builds with CUDA. In a project that adds
# this folder, it builds only the kernels. The installed target is the archive of axle::axle; the
# linker takes only the objects that a program needs.
add_library(axle_kernels_archive STATIC EXCLUDE_FROM_ALL $<TARGET_OBJECTS:axle_kernels>)
add_library(axle_kernels_only INTERFACE)
add_library(axle::kernels ALIAS axle_kernels_only)
set_target_properties(axle_kernels_only PROPERTIES EXPORT_NAME kernels)
target_compile_features(axle_kernels_only INTERFACE cxx_std_20)
target_compile_definitions(axle_kernels_only INTERFACE AXLE_CUDA=${cuda})
add_dependencies(axle_kernels_only axle_public_headers)
target_include_directories(
    axle_kernels_only INTERFACE $<BUILD_INTERFACE:${public}>
                                $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_link_libraries(
    axle_kernels_only
    INTERFACE $<BUILD_INTERFACE:axle_kernels_archive> $<INSTALL_INTERFACE:$<TARGET_FILE:axle::axle>>
              Threads::Threads $<$<BOOL:${cuda}>:CUDA::cudart_static>)
