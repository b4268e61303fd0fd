# unity_tests(program): if AXLE_UNITY_TESTS is ON, compiles the sources of a test program in groups of
# 8, which takes a fifth of the time, because sources instantiate the same templates. The sources
# below are compiled alone: their using-directives, or names in their unnamed namespaces, conflict
# with other sources of the program. If a new conflict does not compile, rename the name in conflict
# or add the source to the list.
set(compiled_alone
    tests/accel/config/fsdp_sharding_test.cpp
    tests/accel/config/parallel_options_test.cpp
    tests/accel/loading/join_uneven_inputs_test.cpp
    tests/accel/loading/loader_property_test.cpp
    tests/accel/loading/loader_resume_test.cpp
    tests/accel/loading/own_shards_test.cpp
    tests/accel/loading/prepared_loader_test.cpp
    tests/accel/loading/prepared_loader_vectors_test.cpp
    tests/accel/loop/accumulation_vectors_test.cpp
    tests/accel/loop/scheduler_vectors_test.cpp
    tests/accel/loop/short_window_test.cpp
    tests/accel/loop/weights_test.cpp
    tests/accel/metrics_test.cpp
    tests/accel/precision/fp16_ranks_test.cpp
    tests/accel/precision/fp16_test.cpp
    tests/accel/precision/fp8_test.cpp
    tests/accel/prepare/deepspeed_objects_test.cpp
    tests/accel/prepare/lifetime_test.cpp
    tests/accel/prepare_test.cpp
    tests/accel/process/collectives_test.cpp
    tests/accel/process/processes_test.cpp
    tests/accel/state/accelerate_state_test.cpp
    tests/accel/state/checkpoint_property_test.cpp
    tests/accel/state/crash_image_test.cpp
    tests/accel/state/crash_test.cpp
    tests/accel/state/merge_weights_test.cpp
    tests/accel/state/old_format_test.cpp
    tests/accel/state/replica_state_test.cpp
    tests/accel/state/run_state_test.cpp
    tests/accel/state/save_model_test.cpp
    tests/accel/state/state_files_test.cpp
    tests/accel/state/state_test.cpp
    tests/core/autograd/autograd_test.cpp
    tests/core/files/distributed_checkpoint_test.cpp
    tests/core/files/file_limits_test.cpp
    tests/core/files/folder_test.cpp
    tests/core/files/torch_file_test.cpp
    tests/dist/launch/launch_test.cpp
    tests/dist/launch/machines_test.cpp
    tests/dist/launch/secrets_test.cpp
    tests/dist/launch/signals_test.cpp
    tests/dist/launch/supervise_test.cpp
    tests/dist/mpi/mpi_job_test.cpp
    tests/dist/mpi/mpirun_test.cpp
    tests/dist/parallel/data_parallel_test.cpp
    tests/dist/rendezvous/agreement_test.cpp
    tests/dist/rendezvous/join_test.cpp
    tests/dist/rendezvous/store_test.cpp
    tests/dist/rendezvous/strangers_test.cpp
    tests/dist/sharding/sharded_state_test.cpp
    tests/dist/transport/tcp_acceptor_test.cpp
    tests/dist/transport/tcp_stranger_test.cpp
    tests/dist/transport/tcp_transport_test.cpp
    tests/nn/files/weight_files_test.cpp
    tests/nn/layers/norm_test.cpp
    tests/nn/models/bert_test.cpp
    tests/nn/models/llama_test.cpp
    tests/nn/models/output_test.cpp
    tests/nn/models/vision_test.cpp
    tests/nn/module_test.cpp
    tests/nn/precision/float8_test.cpp
    tests/nn/precision/layerwise_casting_test.cpp)
set_source_files_properties(${compiled_alone} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)

function(unity_tests program)
    if(AXLE_UNITY_TESTS)
        set_target_properties(${program} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
    endif()
endfunction()
