// Reads the weights of checkpoints that DeepSpeed has written (save_checkpoint) for the stages 0 to
// 3 of ZeRO: a folder such as global_step100 with files of torch.save (core/files/torch_file.h).
//
//     mp_rank_00_model_states.pt                 the weights in the dtype of training, buffers, and
//                                                in stages 1 to 3 the shapes of all parameters
//     zero_pp_rank_0_mp_rank_00_model_states.pt  instead in stage 3, one for each process: weights
//                                                are empty, frozen ones are in parts
//     zero_pp_rank_0_mp_rank_00_optim_states.pt  in stages 1 to 3, one for each process: parts of
//                                                the f32 weights, and the optimizer's state;
//                                                bf16_zero_pp_rank_... for training in bf16
//
// In stages 1 and 2, the f32 weights of a group of parameters are one flat vector with padding at
// the end and, if the files list param_alignment_paddings, after each weight. The vector is cut
// into parts. In stage 3, each weight is cut into equal parts, and the last part is padded. A
// process stores its parts of all weights one after another.
//
// Nothing in the files is executed, and objects of DeepSpeed's classes are ignored.
//
// Limits: checkpoints of tensor or pipeline parallel training (mp_rank_01) and of mixtures of
// experts throw FileError. Unless TorchFileOptions::check_crc is false, opening a checkpoint reads
// all of its files once, to verify their checksums. The files stay mapped into memory. Reading a
// weight allocates memory for its elements.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/files/torch_file.h"
#include "core/shape.h"
#include "core/tensor.h"
#include "core/tree/tree.h"

namespace axle::dist {

// An open checkpoint of DeepSpeed. Files must not be symbolic links. Functions throw FileError with
// the path and the reason if a file is missing or invalid, or if the parts do not fit together.
// Several threads can read concurrently.
class DeepSpeedCheckpoint {
  public:
    class Weight {
      public:
        DType dtype() const { return dtype_; }
        const Shape& shape() const { return shape_; }

      private:
        friend class DeepSpeedCheckpoint;
        DType dtype_ = DType::f32;
        Shape shape_;
        // The elements are in `parts_`, in order, or in `count_` vectors of the checkpoint,
        // beginning with vector `first_`. In the second case, each vector contains `length_` of the
        // elements, beginning with its element `offset_`.
        std::vector<Tensor> parts_;
        std::size_t first_ = 0, count_ = 0;
        std::int64_t offset_ = 0, length_ = 0;
    };

    // Opens a folder with the files of a checkpoint, or with a file "latest" that contains the name
    // of a subfolder with these files. `options` is passed to load_torch_file(); types that it does
    // not support are always ignored.
    explicit DeepSpeedCheckpoint(const std::string& folder, TorchFileOptions options = {});

    // Returns whether a folder contains the files of a checkpoint, or a file "latest" with the name
    // of a subfolder that contains them.
    static bool is_one(const std::string& folder);

    // Returns the folder with the files.
    const std::string& path() const { return path_; }
    // Returns the names of the files in path(), beginning with the files that contain the shapes.
    std::vector<std::string> files() const;
    // Returns the weights and buffers by name. In stages 1 to 3, trained weights are f32, even if
    // training used another dtype. In stage 0, they have the dtype of the file. f16 and bf16
    // buffers become f32. Frozen weights keep their dtype.
    const std::map<std::string, Weight>& weights() const { return weights_; }
    // Returns the names of the model's weights whose elements are not in any file.
    const std::vector<std::string>& missing() const { return missing_; }
    // Returns a weight on the CPU. Throws FileError if the checkpoint has no weight of this name.
    Tensor read(const std::string& name) const;

  private:
    // A vector in several tensors.
    struct Flat {
        std::vector<Tensor> parts;
        std::vector<std::int64_t> begins;  // index of the first element of each part
        std::int64_t size = 0;

        void add(const Tensor& part);
        // Copies the elements [begin, begin + to.numel()).
        void copy(std::int64_t begin, const Tensor& to) const;
    };

    Tree load(const std::string& file) const;
    Tensor vector_of(const Tree& value, std::int64_t& bytes, const std::string& file) const;
    void read_model(const Tree& state);
    void read_groups(const Tree& shapes, const std::vector<Tree>& optimizers);
    void read_parts(const Tree& shapes, const std::vector<Tree>& optimizers);
    void read_frozen(const std::vector<Tree>& models, bool in_parts);
    void add_rest(const Tree& state);
    void add(const std::string& name, Weight weight);
    void add_whole(const std::string& name, const Tensor& tensor, DType dtype);

    std::string path_;
    TorchFileOptions options_;
    std::vector<std::string> model_files_, optimizer_files_;  // by rank
    std::vector<Flat> flats_;
    std::map<std::string, Weight> weights_;
    std::vector<std::string> missing_;
};

}  // namespace axle::dist
