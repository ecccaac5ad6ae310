/* The fake of libc10.so: errors. */
#include "c10.h"

#include <atomic>

static std::atomic<int> alive{0};

namespace c10 {

Error::Error(SourceLocation location, std::string message)
    : message_(std::move(message)),
      backtrace_(std::make_shared<std::string>(std::string(location.function) + " of " +
                                               location.file)),
      what_(new std::string(message_ + "\nException raised from " + *backtrace_)),
      what_without_backtrace_(message_), caller_(nullptr)
{
    alive++;
}

Error::Error(const Error &other)
    : std::exception(other), message_(other.message_), context_(other.context_),
      backtrace_(other.backtrace_), what_(new std::string(*other.what_)),
      what_without_backtrace_(other.what_without_backtrace_), caller_(other.caller_)
{
    alive++;
}

Error::~Error()
{
    alive--;
}

const char *Error::what() const noexcept
{
    return what_->c_str();
}

const char *Error::what_without_backtrace() const noexcept
{
    return what_without_backtrace_.c_str();
}

namespace detail {
void torchCheckFail(const char *function, const char *file, uint32_t line, const char *message)
{
    throw Error({function, file, line}, message);
}
} // namespace detail

int errors_alive()
{
    return alive;
}

} // namespace c10
