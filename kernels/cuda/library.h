// Private to the library: NVIDIA's libraries, opened when they are first needed. A program that
// links Axle starts without them, and they are not searched for before a GPU kernel needs them.
#pragma once

#include <string>

namespace axle::kernels {

// Adds a text to the result of the next take_library_warning().
void add_library_warning(const std::string& text);

// A shared library. It is searched for in the folders of AXLE_LIBRARY_PATH (separated by colons),
// then in the loader's path, then in Python's packages (nvidia/*/lib), then in /usr/local/cuda*. It
// is never closed. Thread-safe.
class Library {
  public:
    // Example: "cuBLASLt", "libcublasLt", 13 opens libcublasLt.so.13.
    Library(const char* title, const char* stem, int major);
    Library(const Library&) = delete;
    Library& operator=(const Library&) = delete;

    bool found() const { return handle_ != nullptr; }
    // Returns why the library was not found, in a sentence that lists the places searched, or an
    // empty string.
    const std::string& error() const { return error_; }
    // Returns the file that was opened.
    const std::string& path() const { return path_; }

    // Sets a pointer to the function of that name. Throws CudaError if there is none.
    template <class F>
    void bind(const char* name, F*& function) const {
        function = reinterpret_cast<F*>(symbol(name));
    }
    // Throws DeviceError with error() unless the library was found.
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
