//go:build linux

package local

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"io"
	"sync"
	"syscall"

	"github.com/controld/controld/sandbox"
	"golang.org/x/sys/unix"
)

// sink is a new version of a file. It works on the directory it opened,
// whatever happens to the names above it.
type sink struct {
	s        *Sandbox
	op, path string
	opts     sandbox.WriteOptions
	dir      int
	name     string
	temp     *temp
	digest   hash.Hash
	writer   io.Writer
	content  []byte // what writeInPlace writes
	inPlace  bool   // what cannot be replaced is written in place
	stop     func() bool

	mu    sync.Mutex
	ended bool
	err   error // what ended it
}

func newSink(s *Sandbox, op, path string, dir int, name string, opts sandbox.WriteOptions) *sink {
	return &sink{s: s, op: op, path: path, opts: opts, dir: dir, name: name}
}

func (k *sink) fail(err error) error { return fail(k.op, k.path, err) }

// open looks at what is to be replaced and makes the temp.
func (k *sink) open() error {
	if _, _, err := k.current(); err != nil {
		return err
	}
	t, err := k.s.newTemp(k.dir)
	if err != nil {
		return k.fail(err)
	}
	if k.opts.Size.Known && k.opts.Size.Value > 0 {
		if err := reserve(t.fd(), k.opts.Size.Value); err != nil {
			t.drop()
			if err == syscall.EFBIG { // more than the file system could ever hold
				return &sandbox.Error{Kind: sandbox.KindNoSpace, Op: k.op, Path: k.path, Errno: "EFBIG", Err: err}
			}
			return k.fail(err)
		}
	}
	k.temp, k.writer = t, t.file
	if k.opts.Digest {
		k.digest = sha256.New()
		k.writer = io.MultiWriter(t.file, k.digest)
	}
	return nil
}

// reserve allocates space without a change of the size. What cannot fit is
// refused before any of it is taken: fallocate(2) takes all there is before it
// says ENOSPC, and until it has given that back everybody else's disk is full.
// What a file system keeps for its administrator is not a client's to take.
func reserve(fd int, size int64) error {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err == nil && fs.Blocks > 0 && uint64(size-1)/uint64(fs.Frsize) >= fs.Bavail {
		return syscall.ENOSPC
	}
	for {
		err := unix.Fallocate(fd, unix.FALLOC_FL_KEEP_SIZE, 0, size)
		switch err {
		case syscall.EINTR:
			continue
		case syscall.EOPNOTSUPP, syscall.ENOSYS:
			return nil
		}
		return err
	}
}

// current looks at the file that is there now; false when there is none.
func (k *sink) current() (version, bool, error) {
	fd, err := openAt(k.dir, k.name, unix.O_PATH|unix.O_NOFOLLOW, 0)
	if err == syscall.ENOENT {
		return version{}, false, nil
	}
	if err != nil {
		return version{}, false, k.fail(err)
	}
	defer unix.Close(fd)
	v, err := look(fd)
	if err != nil {
		return v, false, k.fail(err)
	}
	return v, true, wantRegular(k.op, k.path, v.st.Mode)
}

// watch aborts the write when ctx ends before the commit.
func (k *sink) watch(ctx context.Context) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.stop = context.AfterFunc(ctx, func() { k.end(sandbox.Cancelled(ctx, k.op, k.path)) })
}

// Writer implements sandbox.Sink.
func (k *sink) Writer() io.Writer { return k.writer }

// Commit implements sandbox.Sink.
func (k *sink) Commit(ctx context.Context, c sandbox.Commit) (sandbox.WriteInfo, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ended {
		return sandbox.WriteInfo{}, k.endedError()
	}
	unlock, err := k.lock(ctx)
	if err != nil {
		k.finish(err)
		return sandbox.WriteInfo{}, err
	}
	defer unlock()
	info, err := k.commit(ctx, c)
	k.finish(err)
	return info, err
}

func (k *sink) endedError() error {
	if k.err != nil {
		return k.err
	}
	return &sandbox.Error{Kind: sandbox.KindConflict, Op: k.op, Path: k.path, Message: "the write has ended"}
}

// lock takes the lock of the name, so that what is looked at before the
// rename is what the rename replaces.
func (k *sink) lock(ctx context.Context) (func(), error) {
	var st unix.Stat_t
	if err := unix.Fstat(k.dir, &st); err != nil {
		return nil, k.fail(err)
	}
	unlock, err := k.s.locks.lock(ctx, nameKey{st.Dev, st.Ino, k.name})
	if err != nil {
		return nil, sandbox.Cancelled(ctx, k.op, k.path)
	}
	return unlock, nil
}

func (k *sink) commit(ctx context.Context, c sandbox.Commit) (sandbox.WriteInfo, error) {
	none := sandbox.WriteInfo{}
	if err := k.check(c); err != nil {
		return none, err
	}
	was, there, err := k.current()
	if err != nil {
		return none, err
	}
	if k.opts.IfMatch != "" && (!there || was.etag() != k.opts.IfMatch) {
		return none, failKind(sandbox.KindConflict, k.op, k.path, "the file is another version, or not there")
	}
	if err := k.temp.seal(); err != nil {
		return none, k.fail(err)
	}
	v, err := k.dress(was, there)
	if err != nil {
		return none, k.fail(err)
	}
	if ctx.Err() != nil {
		return none, sandbox.Cancelled(ctx, k.op, k.path)
	}
	err = k.temp.publish(k.name, !there)
	if err == syscall.EBUSY && k.inPlace {
		return k.writeInPlace()
	}
	if err == nil && k.opts.Sync {
		err = k.syncDir()
		if err != nil { // it has its name, until the power fails
			e := *sandbox.AsError(k.op, k.path, err)
			e.Outcome = sandbox.OutcomeUnknown
			return none, &e
		}
	}
	if err != nil {
		return none, k.fail(err)
	}
	return sandbox.WriteInfo{Bytes: c.Bytes, ETag: v.etag(), Atomic: true}, nil
}

// check compares what arrived with what was promised.
func (k *sink) check(c sandbox.Commit) error {
	if c.SHA256 != "" && k.digest == nil {
		return invalid(k.op, k.path, "a digest that was not announced")
	}
	var st unix.Stat_t
	if err := unix.Fstat(k.temp.fd(), &st); err != nil {
		return k.fail(err)
	}
	got, want := st.Size, c.Bytes
	if got == want && k.opts.Size.Known {
		want = k.opts.Size.Value
	}
	if got != want {
		return &sandbox.Error{Kind: sandbox.KindTruncated, Op: k.op, Path: k.path, Bytes: sandbox.Some(got), Expected: sandbox.Some(want)}
	}
	if c.SHA256 != "" && c.SHA256 != hex.EncodeToString(k.digest.Sum(nil)) {
		return failKind(sandbox.KindCorrupt, k.op, k.path, "the digest of what arrived differs")
	}
	return nil
}

// dress gives the temp the owner, mode and time it will have, all before it
// is visible, and puts it on the disk where that was asked for.
func (k *sink) dress(was version, there bool) (version, error) {
	fd := k.temp.fd()
	mine, err := look(fd)
	if err != nil {
		return mine, err
	}
	mode := uint32(newMode)
	if there {
		mode = was.st.Mode & 0o777
		if mine.st.Uid != was.st.Uid || mine.st.Gid != was.st.Gid {
			if err := chown(fd, was.st.Uid, was.st.Gid); err != nil {
				return mine, err
			}
		}
	}
	if k.opts.Mode.Known {
		mode = k.opts.Mode.Value
	}
	if err := unix.Fchmod(fd, mode); err != nil {
		return mine, err
	}
	if err := k.s.stamp(fd); err != nil {
		return mine, err
	}
	if k.opts.Sync {
		if err := k.temp.file.Sync(); err != nil {
			return mine, err
		}
	}
	return look(fd)
}

// chown gives a file away. An owner that has no number in this user namespace
// cannot be given one: that is a right that is missing, not a wrong argument.
func chown(fd int, uid, gid uint32) error {
	err := unix.Fchown(fd, int(uid), int(gid))
	if err == syscall.EINVAL {
		return syscall.EPERM
	}
	return err
}

func (k *sink) syncDir() error {
	fd, err := openAt(k.dir, ".", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Fsync(fd)
}

// Abort implements sandbox.Sink.
func (k *sink) Abort(cause error) error {
	if ended := k.end(cause); ended != nil {
		return ended
	}
	if cause == nil {
		return nil
	}
	return sandbox.AsError(k.op, k.path, cause)
}

// end drops everything, unless the write has ended. It waits for a commit
// that runs and returns what ended the write before.
func (k *sink) end(cause error) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ended {
		return k.err
	}
	if cause == nil {
		cause = &sandbox.Error{Kind: sandbox.KindAborted, Op: k.op, Path: k.path, Outcome: sandbox.OutcomeNone}
	}
	k.finish(sandbox.AsError(k.op, k.path, cause))
	return nil
}

// finish releases everything. mu is held.
func (k *sink) finish(err error) {
	k.ended, k.err = true, err
	k.temp.drop()
	unix.Close(k.dir)
	if k.stop != nil {
		k.stop()
	}
}
