#include "support/http_server.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <stdexcept>

namespace weft::test {

HttpServer::HttpServer() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  socklen_t length = sizeof address;
  if (::bind(socket_, generic, length) != 0 || ::listen(socket_, 8) != 0 ||
      ::getsockname(socket_, generic, &length) != 0)
    throw std::runtime_error("the test's server cannot listen");
  port_ = ntohs(address.sin_port);
  thread_ = std::thread([this] { serve(); });
}

HttpServer::~HttpServer() {
  ::shutdown(socket_, SHUT_RDWR);  // accept() returns
  thread_.join();
  ::close(socket_);
}

std::string HttpServer::url() const {
  return fmt::format("http://127.0.0.1:{}", port_);
}

void HttpServer::set(const std::string& path, Page page) {
  const std::lock_guard lock(mutex_);
  pages_[path] = std::move(page);
}

void HttpServer::remove(const std::string& path) {
  const std::lock_guard lock(mutex_);
  pages_.erase(path);
}

int HttpServer::requests(const std::string& path) const {
  const std::lock_guard lock(mutex_);
  const auto found = requests_.find(path);
  return found == requests_.end() ? 0 : found->second;
}

std::string HttpServer::last_request(const std::string& path) const {
  const std::lock_guard lock(mutex_);
  const auto found = last_.find(path);
  return found == last_.end() ? "" : found->second;
}

void HttpServer::serve() {
  for (;;) {
    const int client = ::accept4(socket_, nullptr, nullptr, SOCK_CLOEXEC);
    if (client < 0) return;
    std::string request;
    char block[4096];
    while (request.find("\r\n\r\n") == std::string::npos) {
      const ssize_t n = ::recv(client, block, sizeof block, 0);
      if (n <= 0) break;
      request.append(block, static_cast<size_t>(n));
    }
    const std::string text = answer(request);
    for (size_t done = 0; done < text.size();) {
      const ssize_t n = ::send(client, text.data() + done, text.size() - done, MSG_NOSIGNAL);
      if (n <= 0) break;
      done += static_cast<size_t>(n);
    }
    ::close(client);
  }
}

/// To "GET /path HTTP/1.1\r\nRange: bytes=100-\r\n...".
std::string HttpServer::answer(const std::string& request) {
  const std::lock_guard lock(mutex_);
  const size_t begin = request.find(' ') + 1, end = request.find(' ', begin);
  const std::string path = request.substr(begin, end - begin);
  ++requests_[path];
  last_[path] = request;
  const auto found = pages_.find(path);
  if (found == pages_.end())
    return "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
  const Page& page = found->second;
  size_t from = 0;
  const bool continues = page.ranges && page.location.empty();
  if (const size_t range = request.find("Range: bytes="); continues && range != std::string::npos)
    from = std::strtoull(request.c_str() + range + 13, nullptr, 10);
  if (from > 0 && from >= page.body.size())
    return "HTTP/1.1 416 Range Not Satisfiable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
  const std::string part = page.body.substr(from);
  std::string head = fmt::format("HTTP/1.1 {} x\r\nContent-Length: {}\r\nConnection: close\r\n",
                                 from > 0 ? 206 : page.status, part.size());
  if (from > 0)
    head += fmt::format("Content-Range: bytes {}-{}/{}\r\n", from, page.body.size() - 1, page.body.size());
  if (!page.location.empty()) head += fmt::format("Location: {}\r\n", page.location);
  return head + "\r\n" + part.substr(0, page.cut);
}

}  // namespace weft::test
