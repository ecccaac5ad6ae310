/*
 * Puts Genesis under an MXNet that is built already: preloaded, it is asked for the storage in
 * place of MXNet's own, which remains for memory that processes share.
 *
 *     c++ -std=c++17 -O2 -fPIC -shared plug.cpp -o libgenesis_mxnet.so -lgenesis -ldl
 *
 * with -D_GLIBCXX_USE_CXX11_ABI=0 for the wheels, whose strings are of a time before C++11's.
 */
#include <genesis/mxnet.hpp>

#include <dlfcn.h>

#include <stdexcept>

namespace mxnet {

/* What the function returns: a reference in 2.x. */
typedef decltype(Storage::_GetSharedRef()) shared_storage;

/* The function of this name that libmxnet.so has, by which MXNet would have made its own. */
static std::shared_ptr<Storage> made_by_mxnet()
{
    void *found = dlsym(RTLD_NEXT, "_ZN5mxnet7Storage13_GetSharedRefEv");
    if (found == nullptr) {
        /* libmxnet.so is not searched by default where Python has opened it. */
        void *library = dlopen("libmxnet.so", RTLD_NOW | RTLD_NOLOAD);
        found = library == nullptr ? nullptr : dlsym(library, "_ZN5mxnet7Storage13_GetSharedRefEv");
    }
    if (found == nullptr) {
        throw std::runtime_error("there is no libmxnet.so to make its own storage");
    }
    return reinterpret_cast<shared_storage (*)()>(found)();
}

shared_storage Storage::_GetSharedRef()
{
    static std::shared_ptr<Storage> storage(new genesis::mxnet::storage(made_by_mxnet()));
    return storage;
}

Storage *Storage::Get()
{
    static Storage *storage = _GetSharedRef().get();
    return storage;
}

} // namespace mxnet
