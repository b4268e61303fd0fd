// A file system in memory that records operations. A test can enumerate the states that a power
// failure may leave on the disk (crash images).
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/mman.h>

#include "core/files/file_system.h"

namespace axle::tests {

// Replaces the file system of the process while this object exists.
class ReplacedFileSystem {
  public:
    explicit ReplacedFileSystem(FileSystem& system) : before_(replace_file_system(&system)) {}
    ~ReplacedFileSystem() { replace_file_system(before_); }
    ReplacedFileSystem(const ReplacedFileSystem&) = delete;
    ReplacedFileSystem& operator=(const ReplacedFileSystem&) = delete;

  private:
    FileSystem* before_;
};

// A file system of regular files and folders, without links and permissions. Paths are absolute, or
// relative to an open folder. Not thread-safe.
class MemoryFileSystem final : public FileSystem {
  public:
    // Calls f on states of the disk that a power failure during the recorded operations may leave.
    // `operations` is the number of operations that had begun. A change is on the disk after its
    // file or folder was synced. Before the sync, a change of a folder may be missing, and the data
    // of a file may be missing or half written. All combinations are built if there are at most
    // `exhaustive` such changes. Otherwise 2^exhaustive combinations are built: without the
    // changes, with all of them, and random ones, in which the data of a file can also be complete.
    using Image = std::function<void(MemoryFileSystem& image, std::size_t operations)>;
    void for_each_crash_image(const Image& f, std::size_t exhaustive = 8) const {
        std::mt19937 engine(1);
        for (std::size_t end = 0; end <= log_.size(); ++end) {
            const std::vector<std::size_t> pending = pending_before(end);
            const bool all = pending.size() <= exhaustive;
            const std::size_t count = std::size_t{1} << std::min(pending.size(), exhaustive);
            for (std::size_t i = 0; i < count; ++i) {
                std::vector<int> kept(pending.size());
                for (std::size_t j = 0; j < pending.size(); ++j)
                    kept[j] = all      ? static_cast<int>(i >> j & 1)
                              : i == 0 ? 0
                              : i == 1 ? 2
                                       : static_cast<int>(engine() % 3);
                MemoryFileSystem image;
                build_image(end, pending, kept, image);
                f(image, end);
            }
        }
    }
    // Sets `image`, which must be empty, to a random state that a power failure may leave. The data
    // of a file that was not synced is on the disk completely, in half or not at all.
    void crash(std::mt19937& engine, MemoryFileSystem& image) const {
        const std::size_t end = engine() % (log_.size() + 1);
        const std::vector<std::size_t> pending = pending_before(end);
        std::vector<int> kept(pending.size());
        for (int& how : kept) how = static_cast<int>(engine() % 3);
        build_image(end, pending, kept, image);
    }
    // Returns the number of recorded operations.
    std::size_t operations() const { return log_.size(); }
    // Returns the number of recorded syncs of files and folders.
    std::size_t syncs() const {
        return static_cast<std::size_t>(
            std::count_if(log_.begin(), log_.end(),
                          [](const Operation& done) { return done.synced != nullptr; }));
    }
    // Clears the recorded operations: the current state is on the disk.
    void forget() {
        log_.clear();
        forget_below(*root_);
    }

    int open(int folder, const std::string& name, int flags, unsigned) override {
        const auto [parent, last] = resolve(folder, name);
        if (parent == nullptr) return -ENOENT;
        std::shared_ptr<Node> node = last.empty() ? parent : child(*parent, last);
        if (node != nullptr && (flags & O_CREAT) != 0 && (flags & O_EXCL) != 0) return -EEXIST;
        if (node == nullptr && (flags & O_CREAT) == 0) return -ENOENT;
        if (node == nullptr) {
            node = std::make_shared<Node>(Node{.inode = ++inodes_});
            change(parent, {{last, node}});
        }
        if ((flags & O_DIRECTORY) != 0 && !node->is_folder) return -ENOTDIR;
        descriptors_[++last_descriptor_] = {node, 0};
        return last_descriptor_;
    }
    std::int64_t read(int file, std::int64_t offset, std::span<std::byte> bytes) override {
        const std::string& data = descriptors_.at(file).node->data;
        const auto begin = std::min(static_cast<std::size_t>(offset), data.size());
        const std::size_t n = std::min(bytes.size(), data.size() - begin);
        std::memcpy(bytes.data(), data.data() + begin, n);
        return static_cast<std::int64_t>(n);
    }
    std::int64_t write(int file, std::span<const std::byte> bytes) override {
        Open& to = descriptors_.at(file);
        std::string& data = to.node->data;
        data.resize(std::max(data.size(), to.offset + bytes.size()));
        std::memcpy(data.data() + to.offset, bytes.data(), bytes.size());
        to.offset += bytes.size();
        log_.push_back({.written = to.node, .data = data});
        return std::ssize(bytes);
    }
    int sync(int file) override {
        log_.push_back({.synced = descriptors_.at(file).node});
        return 0;
    }
    int close(int file) override {
        const std::shared_ptr<Node> node = descriptors_.at(file).node;
        if (node->owner == file) node->owner = 0;
        descriptors_.erase(file);
        return 0;
    }
    int lock(int file) override {
        Node& node = *descriptors_.at(file).node;
        if (node.owner != 0 && node.owner != file) return -EWOULDBLOCK;
        node.owner = file;
        return 0;
    }
    int map(int file, std::size_t size, void*& memory) override {
        memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED) return -errno;
        const std::string& data = descriptors_.at(file).node->data;
        std::memcpy(memory, data.data(), std::min(size, data.size()));
        return 0;
    }
    int status(int file, FileStatus& status) override {
        status = status_of(*descriptors_.at(file).node);
        return 0;
    }
    int status(int folder, const std::string& name, FileStatus& status) override {
        const auto [parent, last] = resolve(folder, name);
        if (parent == nullptr) return -ENOENT;
        const std::shared_ptr<Node> node = last.empty() ? parent : child(*parent, last);
        if (node == nullptr) return -ENOENT;
        status = status_of(*node);
        return 0;
    }
    int list(int folder, std::vector<std::string>& names) override {
        names.clear();
        for (const auto& [name, node] : descriptors_.at(folder).node->entries)
            names.push_back(name);
        return 0;
    }
    int make_folder(int folder, const std::string& name) override {
        const auto [parent, last] = resolve(folder, name);
        if (parent == nullptr) return -ENOENT;
        if (last.empty() || child(*parent, last) != nullptr) return -EEXIST;
        change(parent,
               {{last, std::make_shared<Node>(Node{.is_folder = true, .inode = ++inodes_})}});
        return 0;
    }
    int remove_file(int folder, const std::string& name) override {
        const auto [parent, last] = resolve(folder, name);
        const auto node = parent == nullptr ? nullptr : child(*parent, last);
        if (node == nullptr) return -ENOENT;
        if (node->is_folder) return -EISDIR;
        change(parent, {{last, nullptr}});
        return 0;
    }
    int remove_folder(int folder, const std::string& name) override {
        const auto [parent, last] = resolve(folder, name);
        const auto node = parent == nullptr ? nullptr : child(*parent, last);
        if (node == nullptr) return -ENOENT;
        if (!node->is_folder) return -ENOTDIR;
        if (!node->entries.empty()) return -ENOTEMPTY;
        change(parent, {{last, nullptr}});
        return 0;
    }
    int rename(const std::string& from, const std::string& to) override {
        const auto [parent, last] = resolve(kWorkingFolder, from);
        const auto [target, name] = resolve(kWorkingFolder, to);
        const auto node = parent == nullptr ? nullptr : child(*parent, last);
        if (node == nullptr || target == nullptr) return -ENOENT;
        if (const auto there = child(*target, name); there != nullptr && there->is_folder) {
            if (!node->is_folder) return -EISDIR;
            if (!there->entries.empty()) return -ENOTEMPTY;
        }
        if (parent != target) return -EXDEV;  // Axle renames only within a folder
        change(parent, {{last, nullptr}, {name, node}});
        return 0;
    }
    int exchange(const std::string& a, const std::string& b) override {
        const auto [parent, first] = resolve(kWorkingFolder, a);
        const auto [other, second] = resolve(kWorkingFolder, b);
        if (parent == nullptr || parent != other) return -EXDEV;
        const auto x = child(*parent, first), y = child(*parent, second);
        if (x == nullptr || y == nullptr) return -ENOENT;
        change(parent, {{first, y}, {second, x}});
        return 0;
    }
    std::int64_t free_bytes(const std::string&) override { return INT64_MAX; }

  private:
    struct Node {
        bool is_folder = false;
        std::uint64_t inode = 0;
        std::string data = {};
        std::map<std::string, std::shared_ptr<Node>> entries = {};
        int owner = 0;  // the descriptor that has the lock
        // The state when forget() was called.
        std::string old_data = {};
        std::map<std::string, std::shared_ptr<Node>> old_entries = {};
    };
    struct Open {
        std::shared_ptr<Node> node;
        std::size_t offset;
    };
    using Entries = std::vector<std::pair<std::string, std::shared_ptr<Node>>>;
    struct Operation {
        std::shared_ptr<Node> written = {};  // a write, after which the file has `data`
        std::string data = {};
        std::shared_ptr<Node> changed = {};  // a folder whose `entries` changed (null: removed)
        Entries entries = {};
        std::shared_ptr<Node> synced = {};
    };

    static FileStatus status_of(const Node& node) {
        return {.kind = node.is_folder ? FileKind::folder : FileKind::file,
                .size = std::ssize(node.data),
                .device = 1,
                .inode = node.inode};
    }
    static std::shared_ptr<Node> child(const Node& folder, const std::string& name) {
        const auto found = folder.entries.find(name);
        return found == folder.entries.end() ? nullptr : found->second;
    }
    // Returns the folder of a path and the last part of the path. The part is empty for the folder
    // itself. The folder is null if it does not exist.
    std::pair<std::shared_ptr<Node>, std::string> resolve(int folder,
                                                          const std::string& path) const {
        std::shared_ptr<Node> at = folder == kWorkingFolder ? root_ : descriptors_.at(folder).node;
        std::vector<std::string> parts;
        for (std::size_t begin = 0; begin <= path.size();) {
            const std::size_t slash = std::min(path.find('/', begin), path.size());
            const std::string part = path.substr(begin, slash - begin);
            if (!part.empty() && part != ".") parts.push_back(part);
            begin = slash + 1;
        }
        if (parts.empty()) return {at, ""};
        for (std::size_t i = 0; i + 1 < parts.size() && at != nullptr; ++i)
            at = child(*at, parts[i]);
        return {at, parts.back()};
    }
    static void apply(std::map<std::string, std::shared_ptr<Node>>& entries,
                      const Entries& changes) {
        for (const auto& [name, node] : changes)
            if (node == nullptr)
                entries.erase(name);
            else
                entries[name] = node;
    }
    void change(const std::shared_ptr<Node>& folder, Entries entries) {
        apply(folder->entries, entries);
        log_.push_back({.changed = folder, .entries = std::move(entries)});
    }
    static void forget_below(Node& node) {
        node.old_data = node.data;
        node.old_entries = node.entries;
        for (const auto& [name, entry] : node.entries) forget_below(*entry);
    }
    // Returns the operations before `end` that no sync has written to the disk. If a file was
    // written several times, only the last write counts.
    std::vector<std::size_t> pending_before(std::size_t end) const {
        std::vector<std::size_t> pending;
        for (std::size_t i = 0; i < end; ++i) {
            const Operation& done = log_[i];
            if (done.synced != nullptr)
                std::erase_if(pending, [&](std::size_t j) {
                    return log_[j].written == done.synced || log_[j].changed == done.synced;
                });
            else {
                if (done.written != nullptr)
                    std::erase_if(pending,
                                  [&](std::size_t j) { return log_[j].written == done.written; });
                pending.push_back(i);
            }
        }
        return pending;
    }
    // Builds a state of the disk. kept[i] is 2 if the operation pending[i] is on the disk and 0 if
    // it is not. It is 1 if half of a write is on the disk; for other operations, 1 means the same
    // as 2.
    void build_image(std::size_t end, const std::vector<std::size_t>& pending,
                     const std::vector<int>& kept, MemoryFileSystem& image) const {
        std::map<const Node*, std::string> data;
        std::map<const Node*, std::map<std::string, std::shared_ptr<Node>>> entries;
        for (std::size_t i = 0; i < end; ++i) {
            const Operation& done = log_[i];
            const auto found = std::find(pending.begin(), pending.end(), i);
            const int how = found == pending.end()
                                ? 2
                                : kept[static_cast<std::size_t>(found - pending.begin())];
            if (done.changed != nullptr) {
                const auto at = entries.try_emplace(done.changed.get(), done.changed->old_entries);
                if (how != 0) apply(at.first->second, done.entries);
            } else if (done.written != nullptr) {
                const bool is_replaced = found == pending.end() && is_written_again(i, end);
                if (is_replaced) continue;
                const auto at = data.try_emplace(done.written.get(), done.written->old_data);
                if (how == 2) at.first->second = done.data;
                if (how == 1) at.first->second = done.data.substr(0, done.data.size() / 2);
            }
        }
        copy(*root_, *image.root_, data, entries, image);
        image.forget();
    }
    // Returns whether a later write before `end`, without a sync in between, replaces this write.
    bool is_written_again(std::size_t i, std::size_t end) const {
        for (std::size_t j = i + 1; j < end; ++j) {
            if (log_[j].synced == log_[i].written) return false;
            if (log_[j].written == log_[i].written) return true;
        }
        return false;
    }
    static void copy(
        const Node& from, Node& to, const std::map<const Node*, std::string>& data,
        const std::map<const Node*, std::map<std::string, std::shared_ptr<Node>>>& entries,
        MemoryFileSystem& image) {
        to.is_folder = from.is_folder;
        const auto known = data.find(&from);
        to.data = known != data.end() ? known->second : from.old_data;
        const auto names = entries.find(&from);
        for (const auto& [name, node] : names != entries.end() ? names->second : from.old_entries) {
            auto made = std::make_shared<Node>(Node{.inode = ++image.inodes_});
            copy(*node, *made, data, entries, image);
            to.entries[name] = std::move(made);
        }
    }

    std::shared_ptr<Node> root_ = std::make_shared<Node>(Node{.is_folder = true, .inode = 1});
    std::uint64_t inodes_ = 1;
    std::map<int, Open> descriptors_;
    int last_descriptor_ = 1'000'000;
    std::vector<Operation> log_;
};

}  // namespace axle::tests
