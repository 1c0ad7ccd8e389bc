// Buffers for CUPTI's activity records (cupti.py).
//
// CUPTI calls `request` and `complete` with its locks held, on every launching thread and on a thread that it owns. A
// Python callback would wait for the GIL, which a launching thread may hold while it waits for CUPTI. So these two are
// native, and Python reads the filled buffers when nothing runs.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <mutex>

namespace {

constexpr int MOST = 64;
enum State { IDLE, LENT, FILLED, READ };

struct Buffer {
    uint8_t* data;
    size_t bytes, valid;
    State state;
};

std::mutex lock;
Buffer buffers[MOST];
int made = 0;
size_t bytes_of_one = size_t(4) << 20;  // about 20,000 kernels; CUPTI clears each buffer that it gets

bool make(Buffer& buffer) {
    std::free(buffer.data);
    buffer = {static_cast<uint8_t*>(std::malloc(bytes_of_one)), bytes_of_one, 0, IDLE};
    return buffer.data != nullptr;
}

// An idle buffer of the right size, else a new one, else a reallocated one of another size.
Buffer* idle() {
    Buffer* other = nullptr;
    for (int at = 0; at < made; ++at) {
        if (buffers[at].state != IDLE) continue;
        if (buffers[at].data != nullptr && buffers[at].bytes == bytes_of_one) return &buffers[at];
        other = &buffers[at];
    }
    if (made < MOST) other = &buffers[made++];
    return other != nullptr && make(*other) ? other : nullptr;
}

}  // namespace

extern "C" {

// Declines if no buffer is left; CUPTI then counts the records it drops.
void request(uint8_t** data, size_t* size, size_t* most_records) {
    std::lock_guard<std::mutex> hold(lock);
    Buffer* found = idle();
    if (found != nullptr) found->state = LENT;
    *data = found != nullptr ? found->data : nullptr;
    *size = found != nullptr ? found->bytes : 0;
    *most_records = 0;
}

// Ignores buffers of other users, left in CUPTI from before, which are also returned here.
void complete(void*, uint32_t, uint8_t* data, size_t, size_t valid) {
    std::lock_guard<std::mutex> hold(lock);
    for (int at = 0; at < made; ++at)
        if (buffers[at].data == data && buffers[at].state == LENT) {
            buffers[at].valid = valid;
            buffers[at].state = FILLED;
        }
}

// The next filled buffer, for reading; null if there is none.
uint8_t* take(size_t* valid) {
    std::lock_guard<std::mutex> hold(lock);
    for (int at = 0; at < made; ++at)
        if (buffers[at].state == FILLED) {
            buffers[at].state = READ;
            *valid = buffers[at].valid;
            return buffers[at].data;
        }
    return nullptr;
}

// Makes all buffers that were taken available again.
void give_back() {
    std::lock_guard<std::mutex> hold(lock);
    for (int at = 0; at < made; ++at)
        if (buffers[at].state == READ) buffers[at].state = IDLE;
}

int count() {
    std::lock_guard<std::mutex> hold(lock);
    return made;
}

// The size of buffers handed out from now on.
void set_bytes(size_t bytes) {
    std::lock_guard<std::mutex> hold(lock);
    bytes_of_one = bytes;
}

}  // extern "C"
