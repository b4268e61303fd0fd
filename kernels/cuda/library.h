// Private to the library: NVIDIA's libraries, which are searched for and opened when a GPU kernel
// first needs them. Programs that link Axle start without them.
#pragma once

#include <string>

namespace axle::kernels {

// Adds a text to the result of the next call of take_library_warning().
void add_library_warning(const std::string& text);

// A shared library that is opened at run time and never closed. The search order is the folders of
// AXLE_LIBRARY_PATH (separated by colons), the loader's path, Python's packages (nvidia/*/lib), and
// /usr/local/cuda*. A file in a folder of AXLE_LIBRARY_PATH that cannot be opened ends the search.
// Thread-safe.
class Library {
  public:
    // Opens a library: ("cuBLASLt", "libcublasLt", 13) opens libcublasLt.so.13. If it is not found,
    // adds a library warning.
    Library(const char* title, const char* stem, int major);
    Library(const Library&) = delete;
    Library& operator=(const Library&) = delete;

    bool found() const { return handle_ != nullptr; }
    // Returns the reason why the library was not opened, such as the folders that were searched, or
    // an empty string if it was opened.
    const std::string& error() const { return error_; }
    // Returns the path of the file that was opened.
    const std::string& path() const { return path_; }

    // Sets `function` to the library's function of that name. Throws CudaError if the library does
    // not have it, and DeviceError if the library was not found.
    template <class F>
    void bind(const char* name, F*& function) const {
        function = reinterpret_cast<F*>(symbol(name));
    }
    // Throws DeviceError with the text of error() if the library was not found.
    void require() const;

  private:
    void* symbol(const char* name) const;
    void search(const char* stem);
    bool open(const std::string& file);

    std::string title_, name_;
    void* handle_ = nullptr;
    std::string path_, error_;
};

}  // namespace axle::kernels
