// Private to the library: NVIDIA's libraries, opened when they are first needed. A program that
// links Axle starts without them, and one that never multiplies on a GPU never looks for them.
#pragma once

#include <string>

namespace axle::inline v0::kernels {

// Has the next take_library_warning() say so.
void add_library_warning(const std::string& text);

// One shared library. Searched for in the folders of AXLE_LIBRARY_PATH (separated by colons), then
// where the system's loader looks, then in Python's packages (nvidia/*/lib), then in
// /usr/local/cuda*. Never closed. Threads may share it.
class Library {
  public:
    // "cuBLASLt", "libcublasLt", 13: opens libcublasLt.so.13.
    Library(const char* title, const char* stem, int major);
    Library(const Library&) = delete;
    Library& operator=(const Library&) = delete;

    bool found() const { return handle_ != nullptr; }
    // Why it was not found, in a sentence that lists where it was looked for; or empty.
    const std::string& trouble() const { return trouble_; }
    // The file that was opened.
    const std::string& path() const { return path_; }

    // Sets a pointer to the function of that name: CudaError if there is none.
    template <class F>
    void bind(const char* name, F*& function) const {
        function = reinterpret_cast<F*>(symbol(name));
    }
    // Throws DeviceError with the trouble, unless the library was found.
    void require() const;

  private:
    void* symbol(const char* name) const;
    void search(const char* stem);
    bool open(const std::string& file);

    std::string title_, name_;
    void* handle_ = nullptr;
    std::string path_, trouble_;
};

}  // namespace axle::inline v0::kernels
