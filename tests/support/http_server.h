#pragma once

#include <map>
#include <mutex>
#include <string>
#include <thread>

namespace weft::test {

/// What a path of the server gives.
struct Page {
  std::string body;
  int status = 200;
  bool ranges = true;              ///< continues where it is asked to
  size_t cut = std::string::npos;  ///< closes the connection after so many bytes of an answer
  std::string location = {};       ///< of a redirection
};

/// Serves pages over HTTP on this machine, one request per connection.
class HttpServer {
 public:
  HttpServer();
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  std::string url() const;  ///< "http://127.0.0.1:PORT"
  void set(const std::string& path, Page page);
  void remove(const std::string& path);
  int requests(const std::string& path) const;
  std::string last_request(const std::string& path) const;  ///< with its headers

 private:
  void serve();
  std::string answer(const std::string& request);

  int socket_ = -1;
  int port_ = 0;
  mutable std::mutex mutex_;
  std::map<std::string, Page> pages_;
  std::map<std::string, int> requests_;
  std::map<std::string, std::string> last_;
  std::thread thread_;
};

}  // namespace weft::test
