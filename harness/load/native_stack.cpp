// Says where compiled code crashed or hangs, ahead of Python's fault handler, which only knows the line that called it
// (native_stack.py). One line per frame in an image under `images`: a mark, the offset, the image. The workbench looks up
// files and lines: a crashed process should do as little as possible.

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <dlfcn.h>
#include <execinfo.h>
#include <ucontext.h>
#include <unistd.h>

namespace {

constexpr int SIGNALS[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGUSR2};  // the last: STACK_SIGNAL in lines.py
constexpr int COUNT = sizeof SIGNALS / sizeof *SIGNALS;
constexpr int MOST_FRAMES = 64;
struct sigaction before[COUNT];
char images[4096];
int log_file = STDERR_FILENO;
char stack[1 << 16];  // a stack that has overflowed has no room for a handler

void* faulting(void* context) {
    auto& machine = static_cast<ucontext_t*>(context)->uc_mcontext;
#if defined(__x86_64__)
    return reinterpret_cast<void*>(machine.gregs[REG_RIP]);
#elif defined(__aarch64__)
    return reinterpret_cast<void*>(machine.pc);
#else
    return nullptr;
#endif
}

void tell(void* address, bool is_return) {
    Dl_info about;
    auto place = reinterpret_cast<uintptr_t>(address) - (is_return ? 1 : 0);
    if (!dladdr(reinterpret_cast<void*>(place), &about) || !about.dli_fname) return;
    if (strncmp(about.dli_fname, images, strlen(images)) != 0) return;
    char line[8192];
    auto offset = static_cast<unsigned long>(place - reinterpret_cast<uintptr_t>(about.dli_fbase));
    int length = snprintf(line, sizeof line, "kernbench-native %lx %s\n", offset, about.dli_fname);
    if (length > 0 && write(log_file, line, static_cast<size_t>(length)) < 0) return;
}

void report(int number, siginfo_t*, void* context) {
    for (int index = 0; index < COUNT; ++index) sigaction(SIGNALS[index], &before[index], nullptr);
    void *frames[MOST_FRAMES], *here = faulting(context);
    int count = backtrace(frames, MOST_FRAMES), first = 0;
    while (first < count && frames[first] != here) ++first;
    tell(here, false);
    for (int index = first + 1; index < count; ++index) tell(frames[index], true);
    raise(number);  // what was there before takes over: it prints Python's lines, and a crash ends the process
}

}  // namespace

extern "C" void put_back() {
    struct sigaction action = {}, now;
    action.sa_sigaction = report;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    for (int index = 0; index < COUNT; ++index) {
        sigaction(SIGNALS[index], nullptr, &now);
        if (now.sa_sigaction != report) sigaction(SIGNALS[index], &action, &before[index]);
    }
}

extern "C" void install(const char* folder) {
    strncpy(images, folder, sizeof images - 1);
    static bool is_installed = false;
    if (is_installed) return;
    is_installed = true;
    int copy = dup(STDERR_FILENO);  // stderr itself may be a file in memory when the crash comes (printed.py)
    if (copy >= 0) log_file = copy;
    void* none[1];
    backtrace(none, 1);  // loads the unwinder, which must not happen in the handler
    stack_t room = {};
    room.ss_sp = stack;
    room.ss_size = sizeof stack;
    sigaltstack(&room, nullptr);
    put_back();
}
