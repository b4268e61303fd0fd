// File systems in which one operation fails.
#pragma once

#include <cerrno>
#include <functional>
#include <string>
#include <vector>

#include "core/files/file_system.h"

namespace axle::tests {

// Passes operations to another file system. The operation with the number `failing`, counted from
// 0, returns -error and does not take place; a close always takes place. With the error 0, a write
// stores only half of its bytes, and all other operations take place. Counts all operations that
// can fail, except operations that only read.
class FaultyFileSystem : public FileSystem {
  public:
    FaultyFileSystem(FileSystem& system, std::size_t failing, int error)
        : system_(system), failing_(failing), error_(error) {}

    // Returns the number of calls of sync(), including calls that failed.
    std::size_t syncs() const { return syncs_; }
    // Returns the number of operations that could have failed.
    std::size_t operations() const { return count_; }

    int open(int folder, const std::string& name, int flags, unsigned mode) override {
        constexpr int kCreates = 0100;  // O_CREAT
        if ((flags & kCreates) != 0 && fails_at_all()) return -error_;
        return system_.open(folder, name, flags, mode);
    }
    std::int64_t read(int file, std::int64_t offset, std::span<std::byte> bytes) override {
        return system_.read(file, offset, bytes);
    }
    std::int64_t write(int file, std::span<const std::byte> bytes) override {
        if (!fails()) return system_.write(file, bytes);
        if (error_ != 0) return -error_;
        return system_.write(file, bytes.first((bytes.size() + 1) / 2));
    }
    int sync(int file) override {
        ++syncs_;
        return fails_at_all() ? -error_ : system_.sync(file);
    }
    int close(int file) override {
        const int result = system_.close(file);
        return fails_at_all() ? -error_ : result;
    }
    int lock(int file) override { return fails_at_all() ? -error_ : system_.lock(file); }
    int map(int file, std::size_t size, void*& memory) override {
        return system_.map(file, size, memory);
    }
    int status(int file, FileStatus& status) override { return system_.status(file, status); }
    int status(int folder, const std::string& name, FileStatus& status) override {
        return system_.status(folder, name, status);
    }
    int list(int folder, std::vector<std::string>& names) override {
        return system_.list(folder, names);
    }
    int make_folder(int folder, const std::string& name) override {
        return fails_at_all() ? -error_ : system_.make_folder(folder, name);
    }
    int remove_file(int folder, const std::string& name) override {
        return fails_at_all() ? -error_ : system_.remove_file(folder, name);
    }
    int remove_folder(int folder, const std::string& name) override {
        return fails_at_all() ? -error_ : system_.remove_folder(folder, name);
    }
    int rename(const std::string& from, const std::string& to) override {
        return fails_at_all() ? -error_ : system_.rename(from, to);
    }
    int exchange(const std::string& a, const std::string& b) override {
        return fails_at_all() ? -error_ : system_.exchange(a, b);
    }
    std::int64_t free_bytes(const std::string& folder) override {
        return system_.free_bytes(folder);
    }

  protected:
    // Called before the operation that fails.
    virtual void before_failure() {}

  private:
    bool fails() {
        if (count_++ != failing_) return false;
        before_failure();
        return true;
    }
    bool fails_at_all() { return fails() && error_ != 0; }

    FileSystem& system_;
    std::size_t failing_;
    int error_;
    std::size_t count_ = 0, syncs_ = 0;
};

// A file system in which one operation that reads fails: opening, reading, mapping, listing, or
// getting a status. With the error 0, a read returns half of the bytes. With kEnd, a read returns
// no bytes, as if the file had become shorter.
class FailingReads final : public FaultyFileSystem {
  public:
    static constexpr int kEnd = -1;
    FailingReads(FileSystem& system, std::size_t failing, int error)
        : FaultyFileSystem(system, SIZE_MAX, 0),
          system_(system),
          failing_(failing),
          error_(error) {}

    // Returns the number of operations that could have failed.
    std::size_t reads() const { return count_; }

    int open(int folder, const std::string& name, int flags, unsigned mode) override {
        return fails_at_all() ? -error_ : system_.open(folder, name, flags, mode);
    }
    std::int64_t read(int file, std::int64_t offset, std::span<std::byte> bytes) override {
        if (!fails()) return system_.read(file, offset, bytes);
        if (error_ == kEnd) return 0;
        if (error_ != 0) return -error_;
        return system_.read(file, offset, bytes.first((bytes.size() + 1) / 2));
    }
    int map(int file, std::size_t size, void*& memory) override {
        return fails_at_all() ? -error_ : system_.map(file, size, memory);
    }
    int status(int file, FileStatus& status) override {
        return fails_at_all() ? -error_ : system_.status(file, status);
    }
    int status(int folder, const std::string& name, FileStatus& status) override {
        return fails_at_all() ? -error_ : system_.status(folder, name, status);
    }
    int list(int folder, std::vector<std::string>& names) override {
        return fails_at_all() ? -error_ : system_.list(folder, names);
    }

  private:
    bool fails() { return count_++ == failing_; }
    bool fails_at_all() { return fails() && error_ > 0; }

    FileSystem& system_;
    std::size_t failing_;
    int error_;
    std::size_t count_ = 0;
};

}  // namespace axle::tests
