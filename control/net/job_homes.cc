// SPDX-License-Identifier: Apache-2.0
#include "control/net/job_homes.h"

#include <utility>

#include "control/log.h"
#include "control/net/directory_register.h"
#include "control/net/store_register.h"

namespace gradmon {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds kLookEvery{50};
constexpr seconds kLookAgainEvery{1};
constexpr milliseconds kDirectoryAloneFor{500};
constexpr seconds kAskStoreEvery{1};
constexpr seconds kAskStoreLaterEvery{10};
constexpr seconds kAnnounceEvery{1};
constexpr seconds kSayNotFoundAfter{10};
constexpr char kNoStore[] =
    "knows no store (MASTER_ADDR and MASTER_PORT, or GRADMON_STORE, name training's TCPStore)";

}  // namespace

struct JobHomes::InStore {
  std::shared_ptr<SharedStore> store;
  std::unique_ptr<StoreRegister> verdicts;  // null until the epoch is known
  bool announced = false;
};

JobHomes::JobHomes(Job job, DiskThread& disk, std::shared_ptr<Mailbox> mailbox)
    : job_(std::move(job)), disk_(disk), mailbox_(std::move(mailbox)) {}

bool JobHomes::has_store() const { return job_.open_store && job_.world_size > 1 && !store_is_needless_; }

void JobHomes::in_store(std::function<void(InStore&)> work) {
  if (!store_thread_) {
    in_store_ = std::make_shared<InStore>();
    store_thread_ = std::make_unique<DiskThread>("gradmon-store");
    store_thread_->post([own = in_store_, open = job_.open_store] { own->store = open(); });
    if (!epoch_.empty()) enter(epoch_);
  }
  store_thread_->post([own = in_store_, work = std::move(work)] { work(*own); });
}

void JobHomes::enter(const std::string& epoch) {
  epoch_ = epoch;
  directory_ = std::make_shared<DirectoryRegister>(job_.output_dir / ".gradmon" / epoch, job_.process_id);
  if (!store_thread_) return;
  store_thread_->post(
      [own = in_store_, epoch] { own->verdicts = std::make_unique<StoreRegister>(own->store, epoch); });
}

void JobHomes::announce(JobEntry entry, Create create, std::function<void()> done) {
  enter(entry.epoch);
  announced_ = entry;
  const bool publish = job_.world_size > 1 || !entry.endpoint.empty();
  const auto make = [verdicts = directory_, output = job_.output_dir, entry = std::move(entry), create,
                     publish] {
    auto made =
        create == Create::registers ? verdicts->create(entry.epoch) : tl::expected<void, std::string>{};
    if (publish) {
      if (auto added = add_job(output, entry); !added)
        log_warn("gradmonctl will not find this job: " + added.error());
    }
    return made;
  };
  disk_.ask(mailbox_, make, [this, done = std::move(done)](const tl::expected<void, std::string>& made) {
    if (!made) log_error("register: " + made.error());
    if (!made && job_.world_size == 1) directory_ = std::make_shared<MemoryRegister>();
    done();
  });
}

void JobHomes::keep_announced(Clock::time_point now) {
  if (!announced_ || !has_store() || announced_in_store_ || settled_) return;
  if (!due(announcement_, kAnnounceEvery, now)) return;
  announce_in_store([this](const tl::expected<void, std::string>& made) {
    announcement_.under_way = false;
    announced_in_store_ = made.has_value();
    if (!made) log_debug("not announced in the store: " + made.error());
  });
}

bool JobHomes::due(Look& look, Clock::duration pace, Clock::time_point now) {
  if (look.under_way || (look.begun && now - *look.begun < pace)) return false;
  look.under_way = true;
  look.begun = now;
  return true;
}

void JobHomes::announce_in_store(Done done) {
  in_store([entry = *announced_, mailbox = mailbox_, done = std::move(done)](InStore& own) {
    // Only once: an empty store in its place must not become the register.
    auto made = own.announced ? own.verdicts->prove(entry.epoch) : own.verdicts->create(entry.epoch);
    if (made && !own.announced) made = put_job(*own.store, entry);
    own.announced = own.announced || made;
    mailbox->post([done, made] { done(made); });
  });
}

void JobHomes::withdraw_announcement() {
  if (!announced_) return;
  disk_.post([output = job_.output_dir, epoch = announced_->epoch] {
    if (auto removed = remove_job(output, epoch); !removed) log_debug(removed.error());
  });
}

void JobHomes::find_rank0(const std::string& launcher_id, Clock::time_point now, const Found& found) {
  if (!search_begun_) search_begun_ = now;
  const bool late = now - *search_begun_ >= kSayNotFoundAfter;
  if (late && !found_ && !said_not_found_) {
    said_not_found_ = true;
    log_warn("no rank 0 of this launch (\"" + launcher_id + "\") is to be found in " +
             job_.output_dir.string() +
             (has_store() ? " or in training's store" : std::string("; this rank ") + kNoStore));
  }
  if (due(directory_look_, found_ || late ? Clock::duration(kLookAgainEvery) : kLookEvery, now))
    look_into_directory(launcher_id, found);
  if (!has_store() || found_in_directory_ || now - *search_begun_ < kDirectoryAloneFor) return;
  if (due(store_look_, late ? kAskStoreLaterEvery : kAskStoreEvery, now)) look_into_store(launcher_id, found);
}

void JobHomes::look_into_directory(const std::string& launcher_id, const Found& found) {
  disk_.post([this, mailbox = mailbox_, output = job_.output_dir, launcher_id, found] {
    const auto job = newest_job(read_jobs(output).value_or(std::vector<JobEntry>{}), launcher_id);
    mailbox->post([this, job, found] {
      directory_look_.under_way = false;
      found_in_directory_ = found_in_directory_ || job;
      found_ = found_ || job;
      if (job) found(*job);
    });
  });
}

void JobHomes::look_into_store(const std::string& launcher_id, const Found& found) {
  in_store([this, mailbox = mailbox_, launcher_id, found](InStore& own) {
    const auto job = get_job(*own.store, launcher_id);
    if (!job) log_debug(job.error());
    mailbox->post([this, job, found] {
      store_look_.under_way = false;
      if (!job || !*job) return;
      found_ = true;
      found(**job);
    });
  });
}

void JobHomes::prove(Home home, const std::string& nonce, Done done) {
  if (home == Home::directory) {
    return disk_.ask(
        mailbox_, [verdicts = directory_, nonce] { return verdicts->prove(nonce); }, std::move(done));
  }
  if (!has_store()) return done(tl::unexpected(std::string(kNoStore)));
  if (announced_) return announce_in_store(std::move(done));
  in_store([mailbox = mailbox_, nonce, done = std::move(done)](InStore& own) {
    mailbox->post([done, proof = own.verdicts->prove(nonce)] { done(proof); });
  });
}

void JobHomes::decide(Home home, const Verdict& verdict, Held held) {
  if (home != Home::store) {
    return disk_.ask(
        mailbox_, [verdicts = directory_, verdict] { return verdicts->decide(verdict); }, std::move(held));
  }
  if (!has_store()) return held(tl::unexpected(std::string(kNoStore)));
  in_store([mailbox = mailbox_, verdict, held = std::move(held)](InStore& own) {
    mailbox->post([held, decided = own.verdicts->decide(verdict)] { held(decided); });
  });
}

void JobHomes::settle(Home home) {
  settled_ = settled_ || home != Home::undecided;
  if (home != Home::directory || std::exchange(store_is_needless_, true)) return;
  store_thread_.reset();
  in_store_.reset();
}

}  // namespace gradmon
