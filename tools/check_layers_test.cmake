# Tests check_layers.cmake with small source trees in SCRATCH. The allowed dependencies are read
# from this repository's CMakeLists.txt.
cmake_minimum_required(VERSION 3.25)

cmake_path(GET CMAKE_CURRENT_LIST_DIR PARENT_PATH source)
set(tree ${SCRATCH}/tree)

# check(file include result output) checks a tree in which `file` includes `include` on line 3, and
# sets `result` and `output`.
function(check file include result output)
    file(REMOVE_RECURSE ${tree})
    file(COPY ${source}/CMakeLists.txt DESTINATION ${tree})
    file(WRITE ${tree}/core/ops/neighbour.h "#pragma once\n")
    file(WRITE ${tree}/core/secret.h "// Private to core: a secret.\n#pragma once\n")
    file(WRITE ${tree}/data/secret.h "// Private to data/loading/loader.cpp: a secret.\n#pragma once\n")
    file(WRITE ${tree}/kernels/open.h "// Private to the library: threads.\n#pragma once\n")
    file(WRITE ${tree}/${file} "#pragma once\n#include <vector>\n"
         "  #  include ${include}  // [why;\n")
    execute_process(COMMAND ${CMAKE_COMMAND} -DROOT=${tree}
                            -P ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/check_layers.cmake
                    RESULT_VARIABLE code ERROR_VARIABLE text OUTPUT_VARIABLE text)
    set(${result} ${code} PARENT_SCOPE)
    set(${output} "${text}" PARENT_SCOPE)
endfunction()

function(expect_allowed file include)
    check(${file} ${include} code text)
    if(NOT code EQUAL 0)
        message(SEND_ERROR "${file} may include ${include}, but was refused:\n${text}")
    endif()
endfunction()

function(expect_refused file include why)
    check(${file} ${include} code text)
    string(FIND "${text}" "${file}:3: includes" place)
    string(FIND "${text}" "${why}" reason)
    if(code EQUAL 0 OR place EQUAL -1 OR reason EQUAL -1)
        message(SEND_ERROR "${file} including ${include} should fail at line 3 with '${why}', "
                           "but the check returned ${code}:\n${text}")
    endif()
endfunction()

expect_allowed(kernels/softmax.cpp "\"kernels/ops/softmax.h\"")
expect_allowed(core/ops/softmax.cpp "\"kernels/ops/softmax.h\"")
expect_allowed(accel/accelerator.h "\"kernels/view.h\"")
expect_allowed(accel/accelerator.h "<string>")
expect_allowed(dist/group/group.cpp "\"optim/adamw.h\"")
expect_allowed(tests/core/softmax_test.cpp "\"tests/cases/softmax.h\"")
expect_allowed(bench/ops.cpp "\"tests/cases/softmax.h\"")
expect_allowed(tools/train.cpp "\"accel/accelerator.h\"")
expect_allowed(core/ops/softmax.cpp "\"core/secret.h\"")
expect_allowed(tests/core/softmax_test.cpp "\"core/secret.h\"")
expect_allowed(tests/tools/train_test.cpp "\"tools/options.h\"")
expect_allowed(data/loading/loader.cpp "\"kernels/open.h\"")

expect_refused(kernels/ops/softmax.h "\"core/tensor.h\"" "kernels -> core")
expect_refused(kernels/cpu/gemm.inl "<core/tensor.h>" "kernels -> core")
expect_refused(kernels/softmax.cu "\"core/tensor.h\"" "kernels -> core")
expect_refused(nn/layers/linear.h "\"optim/adamw.h\"" "nn -> optim")
expect_refused(optim/adamw.cpp "\"data/loading/loader.h\"" "optim -> data")
expect_refused(dist/group/group.cpp "\"accel/accelerator.h\"" "dist -> accel")
expect_refused(accel/accelerator.cpp "\"tests/cases/softmax.h\"" "accel -> tests")
expect_refused(tools/train.cpp "\"tests/cases/softmax.h\"" "tools -> tests")
expect_refused(accel/accelerator.cpp "\"tools/options.h\"" "accel -> tools")
expect_refused(nn/layers/linear.cpp "\"core/secret.h\"" "private to core")
expect_refused(accel/accelerator.h "\"data/secret.h\"" "private to data")
expect_allowed(core/tree/tree.h "\"core/tensor.h\"")
expect_allowed(core/tensor.cpp "\"core/tree/tree.h\"")
expect_refused(core/tensor.h "\"core/tree/tree.h\"" "in this order only: memory text system .")
expect_refused(core/memory/memory.h "\"core/ops/neighbour.h\"" "in this order only")
expect_refused(core/ops/softmax.cpp "\"../../accel/accelerator.h\"" "from the root")
expect_refused(core/ops/softmax.cpp "\"neighbour.h\"" "from the root")

file(REMOVE_RECURSE ${SCRATCH})

# A folder with 31 sources, and a source with 401 lines, are rejected.
file(REMOVE_RECURSE ${tree})
file(COPY ${source}/CMakeLists.txt DESTINATION ${tree})
foreach(i RANGE 1 31)
    file(WRITE ${tree}/core/ops/op${i}.cpp "\n")
endforeach()
string(REPEAT "\n" 401 long)
file(WRITE ${tree}/core/long.cpp "${long}")
execute_process(COMMAND ${CMAKE_COMMAND} -DROOT=${tree}
                        -P ${CMAKE_CURRENT_LIST_DIR}/check_layers.cmake
                RESULT_VARIABLE code ERROR_VARIABLE text OUTPUT_VARIABLE text)
foreach(complaint "core/ops: has 31 sources: at most 30" "core/long.cpp: has 401 lines: at most 400")
    string(FIND "${text}" "${complaint}" place)
    if(code EQUAL 0 OR place EQUAL -1)
        message(SEND_ERROR "the check should print '${complaint}', but returned ${code}:\n${text}")
    endif()
endforeach()
