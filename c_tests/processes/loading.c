/*
 * Loading the library by path, as Python does: loading alone does nothing that can be seen, and
 * the library may be closed, used or not. This program is not linked against it.
 */
#define _POSIX_C_SOURCE 200809L

#include <genesis.h>

#include <dirent.h>
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* The signals of every Unix, and some. */
enum { SIGNALS = 32, BLOCK_BYTES = 1 << 20 };

#define STREAM(number) ((genesis_stream)(uintptr_t)(((uintptr_t)(number) + 1) * 0x1000))
#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

typedef void *(*malloc_function)(size_t size, int device, genesis_stream stream);
typedef void (*free_function)(void *ptr, int device, genesis_stream stream);

static const char *path;

static void *load(void)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        _exit(1);
    }
    return library;
}

/* How many entries a folder has: open files in /proc/self/fd, threads in /proc/self/task. */
static int entries(const char *folder)
{
    int count = 0;
    DIR *directory = opendir(folder);
    CHECK(directory != NULL);
    while (readdir(directory) != NULL) {
        count++;
    }
    closedir(directory);
    return count;
}

static int is_mapped(const char *name)
{
    char line[1000];
    int found = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    CHECK(maps != NULL);
    while (fgets(line, sizeof line, maps) != NULL) {
        found |= strstr(line, name) != NULL;
    }
    fclose(maps);
    return found;
}

static void load_alone(void)
{
    const int files = entries("/proc/self/fd"), threads = entries("/proc/self/task");
    struct sigaction before[SIGNALS], after;
    for (int signal = 1; signal < SIGNALS; signal++) {
        memset(&before[signal], 0, sizeof before[signal]);
        sigaction(signal, NULL, &before[signal]);
    }
    void *library = load();
    CHECK(is_mapped("libgenesis.so"));
    CHECK(entries("/proc/self/fd") == files);
    CHECK(entries("/proc/self/task") == threads);
    CHECK(!is_mapped("libcuda.so") && !is_mapped("memfd:"));
    for (int signal = 1; signal < SIGNALS; signal++) {
        memset(&after, 0, sizeof after);
        sigaction(signal, NULL, &after);
        CHECK(after.sa_handler == before[signal].sa_handler);
    }
    /* Never used, it goes without a trace. */
    CHECK(dlclose(library) == 0);
    CHECK(!is_mapped("libgenesis.so"));
}

static void use(void *library)
{
    void *symbols[2];
    malloc_function allocate;
    free_function release;
    symbols[0] = dlsym(library, "genesis_malloc");
    symbols[1] = dlsym(library, "genesis_free");
    CHECK(symbols[0] != NULL && symbols[1] != NULL);
    memcpy(&allocate, &symbols[0], sizeof allocate);
    memcpy(&release, &symbols[1], sizeof release);
    unsigned char *block = (unsigned char *)allocate(BLOCK_BYTES, 0, STREAM(0));
    CHECK(block != NULL);
    memset(block, 3, BLOCK_BYTES);
    CHECK(block[BLOCK_BYTES - 1] == 3);
    release(block, 0, STREAM(0));
    /* One is left. */
    CHECK(allocate(1000, 0, STREAM(1)) != NULL);
}

static void *use_in_thread(void *library)
{
    use(library);
    return NULL;
}

static void check_fork(void)
{
    int status = -1;
    const pid_t child = fork();
    if (child == 0) {
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static void load_use_close(void)
{
    for (int round = 0; round < 20; round++) {
        pthread_t thread;
        void *library = load();
        use(library);
        CHECK(pthread_create(&thread, NULL, use_in_thread, library) == 0);
        CHECK(pthread_join(thread, NULL) == 0);
        check_fork();
        CHECK(dlclose(library) == 0);
        /* Whether it has gone or not, no handler of it is left dangling. */
        check_fork();
    }
}

int main(int count, char **arguments)
{
    CHECK(count == 3);
    path = arguments[2];
    if (strcmp(arguments[1], "alone") == 0) {
        load_alone();
    } else {
        CHECK(strcmp(arguments[1], "use") == 0);
        load_use_close();
    }
    return 0;
}
