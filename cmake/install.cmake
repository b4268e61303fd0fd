# Installation. The component "dev" contains the library with its headers, CMake package and
# pkg-config file; the component "tools" contains the programs. No installed file contains an
# absolute path.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/axle)
install(TARGETS axle axle_kernels_only EXPORT axleTargets ARCHIVE COMPONENT dev)
install(DIRECTORY ${PROJECT_BINARY_DIR}/public/axle DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
        COMPONENT dev)
install(EXPORT axleTargets NAMESPACE axle:: DESTINATION ${package_dir} COMPONENT dev)

# axleConfig.cmake.in uses the variable `components`, which the layer() calls have set.
configure_package_config_file(
    ${PROJECT_SOURCE_DIR}/cmake/axleConfig.cmake.in ${PROJECT_BINARY_DIR}/axleConfig.cmake
    INSTALL_DESTINATION ${package_dir} NO_SET_AND_CHECK_MACRO NO_CHECK_REQUIRED_COMPONENTS_MACRO)
write_basic_package_version_file(
    ${PROJECT_BINARY_DIR}/axleConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/axleConfig.cmake ${PROJECT_BINARY_DIR}/axleConfigVersion.cmake
              ${PROJECT_SOURCE_DIR}/cmake/link_library.cmake
        DESTINATION ${package_dir} COMPONENT dev)

# The .pc file does not contain the path of CUDA; users set it with LIBRARY_PATH.
set(cuda_libs "")
if(cuda)
    set(cuda_libs " -lcudart_static -ldl -lrt")
endif()
# The prefix is relative to the .pc file, so that the installation can be moved.
string(REGEX REPLACE "[^/]+" ".." prefix_from_pc ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
configure_file(${PROJECT_SOURCE_DIR}/cmake/axle.pc.in ${PROJECT_BINARY_DIR}/axle.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/axle.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig
        COMPONENT dev)
# Programs that decode images use this file, so that other programs do not link its libraries.
set(image_packages axle)
if(AXLE_HAS_JPEG)
    string(APPEND image_packages ", libjpeg")
endif()
if(AXLE_HAS_PNG)
    string(APPEND image_packages ", libpng")
endif()
configure_file(
    ${PROJECT_SOURCE_DIR}/cmake/axle-images.pc.in ${PROJECT_BINARY_DIR}/axle-images.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/axle-images.pc
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT dev)
# Rewrites the links of the pages before the pages are installed, because the links lead to the
# sources.
set(installed_docs ${PROJECT_BINARY_DIR}/installed_docs)
file(RELATIVE_PATH headers_from_docs
     ${CMAKE_INSTALL_FULL_DOCDIR} ${CMAKE_INSTALL_FULL_INCLUDEDIR}/axle)
install(CODE "execute_process(
    COMMAND \"${CMAKE_COMMAND}\" \"-DFROM=${PROJECT_SOURCE_DIR}\"
            \"-DHEADERS=${PROJECT_BINARY_DIR}/public/axle\" \"-DINCLUDE=${headers_from_docs}\"
            \"-DTO=${installed_docs}\" -P \"${PROJECT_SOURCE_DIR}/cmake/write_installed_docs.cmake\"
    COMMAND_ERROR_IS_FATAL ANY)" COMPONENT dev)
install(DIRECTORY ${installed_docs}/ DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT dev)
# Installs the API reference, if tools/docs has generated it.
install(DIRECTORY ${PROJECT_SOURCE_DIR}/build/reference/html
        DESTINATION ${CMAKE_INSTALL_DOCDIR}/reference COMPONENT dev OPTIONAL)

if(AXLE_BUILD_TOOLS)
    install(TARGETS ${programs} RUNTIME COMPONENT tools)
    if(eigen_libraries)  # axle bench opens them
        install(TARGETS ${eigen_libraries}
                LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT tools)
    endif()
endif()
# A program opens these libraries only if it uses MPI, so the packages do not depend on MPI.
if(mpi_engines)
    install(TARGETS ${mpi_engines} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT dev)
endif()

# `cpack -G DEB` creates libaxle-dev and axle-tools; `cpack -G TGZ` creates one archive for each
# component.
if(PROJECT_IS_TOP_LEVEL)
    set(CPACK_GENERATOR DEB TGZ)
    set(CPACK_PACKAGE_CONTACT "The Axle developers")
    set(CPACK_PACKAGE_VENDOR "Axle")
    set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
    set(CPACK_STRIP_FILES ON)
    set(CPACK_COMPONENTS_ALL dev)
    if(AXLE_BUILD_TOOLS)
        list(APPEND CPACK_COMPONENTS_ALL tools)
    endif()
    set(CPACK_ARCHIVE_COMPONENT_INSTALL ON)
    set(CPACK_COMPONENT_DEV_DESCRIPTION
        "Tensors, automatic differentiation, modules, optimizers, data loading and the training
 loop in one C++20 library, without LibTorch or Python: archive, headers and CMake package.")
    set(CPACK_COMPONENT_TOOLS_DESCRIPTION "The launcher axle, and trainers built with Axle.")

    set(CPACK_DEB_COMPONENT_INSTALL ON)
    set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
    set(CPACK_DEBIAN_DEV_PACKAGE_NAME libaxle-dev)
    set(CPACK_DEBIAN_DEV_PACKAGE_SECTION libdevel)
    set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS
        "libpcre2-dev, libsodium-dev, libutf8proc-dev, libyaml-cpp-dev, zlib1g-dev")
    if(AXLE_HAS_JPEG OR AXLE_HAS_PNG)
        set(CPACK_DEBIAN_DEV_PACKAGE_RECOMMENDS "libjpeg-dev, libpng-dev")
    endif()
    if(mpi_engines)
        set(CPACK_DEBIAN_DEV_PACKAGE_SUGGESTS "openmpi-bin | mpich")
    endif()
    set(CPACK_DEBIAN_TOOLS_PACKAGE_NAME axle-tools)
    set(CPACK_DEBIAN_TOOLS_PACKAGE_SECTION science)
    set(CPACK_DEBIAN_TOOLS_PACKAGE_SHLIBDEPS ON)
    include(CPack)
endif()
