/* The error that MXNet throws. */
#ifndef DMLC_LOGGING_H_
#define DMLC_LOGGING_H_

#include <stdexcept>

namespace dmlc {

struct Error : public std::runtime_error {
    using std::runtime_error::runtime_error;
};

} // namespace dmlc

#endif /* DMLC_LOGGING_H_ */
