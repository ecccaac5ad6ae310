/* Many GPUs and several processes: pools for NCCL, and the processes that share a device. */
#include "check.h"

#include <sys/wait.h>
#include <unistd.h>

#define MOST_ENTRIES 16

static void be_quiet(void *user_data, genesis_log_level level, const char *message)
{
    (void)user_data;
    (void)level;
    (void)message;
}

/* With whom memory is registered. */
struct book {
    size_t count;
    size_t registrations;
    int refuses;
    void *addresses[MOST_ENTRIES];
    size_t sizes[MOST_ENTRIES];
};

static int register_memory(void *user_data, int device, void *ptr, size_t bytes)
{
    struct book *book = (struct book *)user_data;
    CHECK(device == 0 && book->count < MOST_ENTRIES);
    if (book->refuses) {
        return 1;
    }
    /* It is there, and can be accessed. */
    fill((unsigned char *)ptr, bytes, 9);
    book->addresses[book->count] = ptr;
    book->sizes[book->count] = bytes;
    book->count += 1;
    book->registrations += 1;
    return 0;
}

static void deregister_memory(void *user_data, int device, void *ptr, size_t bytes)
{
    struct book *book = (struct book *)user_data;
    CHECK(device == 0);
    for (size_t index = 0; index < book->count; index++) {
        if (book->addresses[index] == ptr) {
            CHECK(book->sizes[index] == bytes);
            book->count -= 1;
            book->addresses[index] = book->addresses[book->count];
            book->sizes[index] = book->sizes[book->count];
            return;
        }
    }
    CHECK(!"registered");
}

static const genesis_pool_id POOL = {11, 12};

static void *block_in_pool(size_t size)
{
    CHECK_OK(genesis_private_pool_begin(0, POOL));
    void *block = genesis_malloc(size, 0, STREAM(1));
    CHECK_OK(genesis_private_pool_end(0, POOL));
    CHECK_OK(genesis_private_pool_release(0, POOL));
    return block;
}

static void a_pool_is_registered_while_it_is_there(void)
{
    struct book book;
    memset(&book, 0, sizeof book);
    const genesis_pool_registrar registrar = {&book, register_memory, deregister_memory};
    CHECK_OK(genesis_private_pool_communication_create(0, POOL, &registrar));
    CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT,
                genesis_private_pool_communication_create(0, POOL, &registrar));
    genesis_pool_communication made;
    CHECK_OK(genesis_private_pool_communication_get(0, POOL, &made));
    CHECK(made.granularity_bytes > 0 && made.granularity_bytes % 4096 == 0);
    CHECK(made.peer_count == 0 && (made.is_rdma == 0 || made.is_rdma == 1));
    CHECK((made.handle_types & ~9) == 0);
    CHECK_OK(genesis_private_pool_tag_set(0, POOL, "buffers", GENESIS_BACKUP_PINNED));
    unsigned char *block = (unsigned char *)block_in_pool(3 * MIB);
    CHECK(block != NULL && book.count == 1 && book.addresses[0] == block);
    CHECK(book.sizes[0] % made.granularity_bytes == 0 && book.sizes[0] >= 3 * MIB);
    fill(block, 3 * MIB, 10);
    CHECK_OK(genesis_tag_pause("buffers", 1));
    CHECK(book.count == 0 && book.registrations == 1);
    CHECK_OK(genesis_tag_resume("buffers"));
    CHECK(book.count == 1 && book.registrations == 2 && is_filled(block, 3 * MIB, 10));
    genesis_free(block, 0, STREAM(1));
    CHECK(book.count == 1 && block_in_pool(3 * MIB) == block);
    book.refuses = 1;
    CHECK_REPORTS(GENESIS_STATUS_DRIVER_FAILED, block_in_pool(20 * MIB));
    genesis_free(block, 0, STREAM(1));
    CHECK_OK(genesis_private_pool_release(0, POOL));
    CHECK(book.count == 0);
}

static void misuse_of_pools_is_reported(void)
{
    genesis_pool_communication made;
    CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT,
                genesis_private_pool_communication_get(0, POOL, &made));
    CHECK_OK(genesis_private_pool_hold(0, POOL, 0));
    CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT,
                genesis_private_pool_communication_get(0, POOL, &made));
    CHECK_MESSAGE("(11, 12)");
    CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT,
                genesis_private_pool_communication_get(0, POOL, NULL));
    CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT,
                genesis_private_pool_communication_create(0, POOL, NULL));
    CHECK_OK(genesis_private_pool_release(0, POOL));
    const genesis_pool_registrar half = {NULL, register_memory, NULL};
    CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT,
                genesis_private_pool_communication_create(0, POOL, &half));
    CHECK_FAILS(GENESIS_STATUS_INVALID_DEVICE,
                genesis_private_pool_communication_create(-1, POOL, NULL));
}

typedef void *(*malloc_function)(size_t size, int device, genesis_stream stream);

static malloc_function function_of(genesis_pool_id pool)
{
    void *address = NULL;
    CHECK_OK(genesis_torch_pool_function_get(pool, &address));
    malloc_function function;
    memcpy(&function, &address, sizeof function);
    return function;
}

static void a_pool_has_a_function_of_its_own(void)
{
    const genesis_pool_id other = {11, 13};
    CHECK_OK(genesis_private_pool_communication_create(0, POOL, NULL));
    const malloc_function of_pool = function_of(POOL);
    CHECK(function_of(POOL) == of_pool && function_of(other) != of_pool);
    void *block = of_pool(3 * MIB, 0, STREAM(1));
    genesis_pool_usage usage;
    CHECK_OK(genesis_private_pool_usage_get(0, POOL, &usage));
    CHECK(block != NULL && usage.live_bytes >= 3 * MIB);
    CHECK(of_pool(0, 0, STREAM(1)) == NULL);
    CHECK_REPORTS(GENESIS_STATUS_OUT_OF_MEMORY, of_pool(SIZE_MAX, 0, STREAM(1)));
    CHECK_REPORTS(GENESIS_STATUS_INVALID_DEVICE, of_pool(1, 7, STREAM(1)));
    CHECK_REPORTS(GENESIS_STATUS_INVALID_ARGUMENT, function_of(other)(1, 0, STREAM(1)));
    CHECK_MESSAGE("is not held");
    CHECK_OK(genesis_torch_pool_function_release(other));
    CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT, genesis_torch_pool_function_release(other));
    genesis_free(block, 0, STREAM(1));
    CHECK_OK(genesis_torch_pool_function_release(POOL));
    CHECK_REPORTS(GENESIS_STATUS_INVALID_ARGUMENT, of_pool(1, 0, STREAM(1)));
    CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT, genesis_torch_pool_function_get(POOL, NULL));
    for (uint64_t number = 0; number < 32; number++) {
        const genesis_pool_id one = {20, number};
        CHECK(function_of(one) != NULL);
    }
    void *address = NULL;
    CHECK_FAILS(GENESIS_STATUS_OUT_OF_MEMORY, genesis_torch_pool_function_get(POOL, &address));
    for (uint64_t number = 0; number < 32; number++) {
        const genesis_pool_id one = {20, number};
        CHECK_OK(genesis_torch_pool_function_release(one));
    }
    CHECK_OK(genesis_private_pool_release(0, POOL));
}

/* What was visited. */
struct visited {
    size_t count;
    size_t own;
    int others_process;
    size_t held_bytes;
};

static void visit(void *user_data, const genesis_neighbour *neighbour)
{
    struct visited *visited = (struct visited *)user_data;
    visited->count += 1;
    CHECK(neighbour->program != NULL && neighbour->program[0] != '\0');
    CHECK(neighbour->guarantee_bytes == MIB && neighbour->part_bytes == MIB);
    CHECK(neighbour->limit_bytes == SIZE_MAX);
    visited->held_bytes += neighbour->held_bytes;
    if (neighbour->is_own) {
        CHECK(visited->count == 1 && neighbour->process == (int)getpid());
        visited->own += 1;
    } else {
        visited->others_process = neighbour->process;
    }
}

static struct visited neighbours(void)
{
    struct visited visited;
    memset(&visited, 0, sizeof visited);
    CHECK_OK(genesis_neighbours_visit(0, visit, &visited));
    return visited;
}

/* A child that has a block until its input ends; it writes a byte once it has. */
static pid_t child_with_a_block(int *input, int *output)
{
    int to_child[2];
    int from_child[2];
    CHECK(pipe(to_child) == 0 && pipe(from_child) == 0);
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        char byte = 0;
        close(to_child[1]);
        close(from_child[0]);
        CHECK_OK(genesis_log_callback_set(be_quiet, NULL));
        void *block = block_of(4 * MIB, STREAM(1));
        CHECK(write(from_child[1], &byte, 1) == 1);
        CHECK(read(to_child[0], &byte, 1) == 0);
        genesis_free(block, 0, STREAM(1));
        exit(0);
    }
    close(to_child[0]);
    close(from_child[1]);
    *input = to_child[1];
    *output = from_child[0];
    return child;
}

static void those_who_share_a_device_are_visited(pid_t child, int input, int output)
{
    const char *backend = NULL;
    CHECK_OK(genesis_backend_get(&backend));
    const int is_shared = strcmp(backend, "cuda") == 0;
    char byte;
    CHECK(read(output, &byte, 1) == 1);
    void *block = block_of(2 * MIB, STREAM(1));
    struct visited both = neighbours();
    if (is_shared) {
        CHECK(both.count == 2 && both.own == 1 && both.others_process == (int)child);
        CHECK(both.held_bytes >= 6 * MIB);
    } else {
        CHECK(both.count == 0);
    }
    close(input);
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(neighbours().count == (is_shared ? 1 : 0));
    CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT, genesis_neighbours_visit(0, NULL, NULL));
    CHECK_FAILS(GENESIS_STATUS_INVALID_DEVICE, genesis_neighbours_visit(-1, visit, NULL));
    genesis_free(block, 0, STREAM(1));
    close(output);
}

int main(void)
{
    char name[64];
    snprintf(name, sizeof name, "many-gpus-%d", (int)getpid());
    CHECK(setenv("GENESIS_SHARE", name, 1) == 0);
    CHECK(setenv("GENESIS_SHARE_GUARANTEE", "1MiB", 1) == 0);
    int input = -1;
    int output = -1;
    /* Before the library has made anything. */
    const pid_t child = child_with_a_block(&input, &output);
    CHECK_OK(genesis_log_callback_set(be_quiet, NULL));
    those_who_share_a_device_are_visited(child, input, output);
    if (strategy_is("Elastic")) {
        a_pool_is_registered_while_it_is_there();
        misuse_of_pools_is_reported();
        a_pool_has_a_function_of_its_own();
    } else {
        CHECK_FAILS(GENESIS_STATUS_NOT_SUPPORTED,
                    genesis_private_pool_communication_create(0, POOL, NULL));
    }
    CHECK_OK(genesis_log_callback_set(NULL, NULL));
    return 0;
}
