#include "base/child.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <exception>

#include "base/error.h"

namespace weft {
namespace {

using Clock = std::chrono::steady_clock;
// Exit statuses of our own child: a driver that calls exit(0) must not look like work that was done.
constexpr int kWorkDone = 69;
constexpr int kWorkThrew = 70;   // its output is the message
constexpr int kNoProgram = 127;  // as shells say it
constexpr size_t kKeptErrors = 4096;
constexpr size_t kMostInput = 4096;  // a pipe holds it while nobody reads
constexpr int kTickMs = 100;

struct Pipe {
  int read = -1, write = -1;
  Pipe() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
      fail(ErrorKind::io, "[child] cannot create a pipe: {}", std::strerror(errno));
    read = ends[0], write = ends[1];
  }
  ~Pipe() {
    close_end(read);
    close_end(write);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  static void close_end(int& end) {
    if (end >= 0) ::close(end);
    end = -1;
  }
};

void write_all(int file, const std::string& text) {
  for (size_t done = 0; done < text.size();) {
    const ssize_t n = ::write(file, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    done += static_cast<size_t>(n);
  }
}

/// Standard input is empty, standard error is `err`. Returns `out` under a number that is no standard one.
int begin_child(int out, int err) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // a hung driver must not outlive us
  // Where our own standard files are closed, the pipes have their numbers.
  out = fcntl(out, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  err = fcntl(err, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  const int null = ::open("/dev/null", O_RDWR);
  if (null < 0) _exit(EXIT_FAILURE);
  dup2(null, STDIN_FILENO);
  dup2(null, STDOUT_FILENO);
  dup2(err, STDERR_FILENO);
  for (int sig : {SIGINT, SIGTERM, SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL}) signal(sig, SIG_DFL);
  return out;
}

[[noreturn]] void program_main(const std::vector<std::string>& arguments, int in, int out, int err) {
  std::vector<char*> words;
  for (const std::string& argument : arguments) words.push_back(const_cast<char*>(argument.c_str()));
  words.push_back(nullptr);
  in = fcntl(in, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  dup2(begin_child(out, err), STDOUT_FILENO);
  dup2(in, STDIN_FILENO);
  execvp(words[0], words.data());
  _exit(kNoProgram);
}

[[noreturn]] void child_main(const std::function<std::string()>& work, int out, int err) {
  out = begin_child(out, err);
  int status = kWorkDone;
  std::string text;
  try {
    text = work();
  } catch (const std::exception& e) {
    text = e.what();
    status = kWorkThrew;
  } catch (...) {
    text = "unknown exception";
    status = kWorkThrew;
  }
  write_all(out, text);
  _exit(status);  // no destructors: a driver that hangs at exit is not waited for
}

/// Reads what is there; returns false at the end of the stream.
bool drain(int file, std::string& text) {
  char block[4096];
  const ssize_t n = ::read(file, block, sizeof block);
  if (n > 0) text.append(block, static_cast<size_t>(n));
  return n > 0 || (n < 0 && (errno == EINTR || errno == EAGAIN));
}

/// The same for messages, of which only the end is kept: a driver may print all the time.
bool drain_errors(int file, std::string& text) {
  const bool more = drain(file, text);
  if (text.size() > kKeptErrors) text.erase(0, text.size() - kKeptErrors);
  return more;
}

int wait_for(pid_t pid) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

}  // namespace

ChildResult run_in_child(const std::function<std::string()>& work, std::chrono::milliseconds deadline) {
  Pipe out, err;
  const pid_t pid = fork();
  if (pid < 0) fail(ErrorKind::io, "[child] cannot fork: {}", std::strerror(errno));
  if (pid == 0) child_main(work, out.write, err.write);
  Pipe::close_end(out.write);
  Pipe::close_end(err.write);

  ChildResult result;
  const Clock::time_point end = Clock::now() + deadline;
  while (out.read >= 0) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
    if (left <= 0) break;
    pollfd files[2] = {{out.read, POLLIN, 0}, {err.read, POLLIN, 0}};  // poll skips negative descriptors
    if (poll(files, 2, static_cast<int>(left)) <= 0) continue;
    if (files[1].revents && !drain_errors(err.read, result.errors)) Pipe::close_end(err.read);
    if (files[0].revents && !drain(out.read, result.output)) Pipe::close_end(out.read);
  }
  const bool late = out.read >= 0;
  if (late) kill(pid, SIGKILL);  // before its last messages are read: it may never run out of them
  for (int i = 0; i < 256 && err.read >= 0; ++i) {  // 1 MiB, more than a pipe holds
    pollfd file{err.read, POLLIN, 0};
    if (poll(&file, 1, 0) <= 0) break;
    if (!drain_errors(err.read, result.errors)) Pipe::close_end(err.read);
  }
  const int status = wait_for(pid);
  if (late) {
    result.end = ChildResult::End::timed_out;
    result.reason = fmt::format("no answer within {:g} s", std::chrono::duration<double>(deadline).count());
    result.output.clear();
  } else if (WIFSIGNALED(status)) {
    result.end = ChildResult::End::crashed;
    result.reason = fmt::format("signal {} ({})", WTERMSIG(status), strsignal(WTERMSIG(status)));
    result.output.clear();
  } else if (WEXITSTATUS(status) != kWorkDone) {
    result.end = ChildResult::End::crashed;
    result.reason = WEXITSTATUS(status) == kWorkThrew ? result.output
                                                      : fmt::format("exit status {}", WEXITSTATUS(status));
    result.output.clear();
  }
  return result;
}

ProgramResult run_program(const std::vector<std::string>& arguments,
                          const std::function<void(const std::string& output)>& tick,
                          const std::string& input) {
  if (input.size() > kMostInput)
    fail(ErrorKind::invalid, "[child] {} bytes are too many for a program's input", input.size());
  Pipe in, out, err;
  write_all(in.write, input);
  Pipe::close_end(in.write);
  const pid_t pid = fork();
  if (pid < 0) fail(ErrorKind::io, "[child] cannot fork: {}", std::strerror(errno));
  if (pid == 0) program_main(arguments, in.read, out.write, err.write);
  Pipe::close_end(out.write);
  Pipe::close_end(err.write);
  ProgramResult result;
  try {
    while (out.read >= 0 || err.read >= 0) {
      pollfd files[2] = {{out.read, POLLIN, 0}, {err.read, POLLIN, 0}};
      if (poll(files, 2, kTickMs) > 0) {
        if (files[1].revents && !drain_errors(err.read, result.errors)) Pipe::close_end(err.read);
        if (files[0].revents && !drain(out.read, result.output)) Pipe::close_end(out.read);
      }
      if (tick) tick(result.output);
    }
  } catch (...) {
    kill(pid, SIGKILL);
    wait_for(pid);
    throw;
  }
  const int status = wait_for(pid);
  result.status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return result;
}

}  // namespace weft
