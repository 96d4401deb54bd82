package sandbox

import (
	"context"
	"io"
)

// API is the interface of an agent runtime to the place where its work is
// done. Every method takes a context; cancelling it cancels the work at the
// far end and the call returns an [Error] of kind [KindCancelled] (or, where
// the far end did not say in time what became of it, [KindOutcomeUnknown]).
//
// Paths are byte strings. A relative path starts at the sandbox's own
// directory (see [Info.Cwd]), with a Scope at the scope. An empty path and a
// NUL byte are [KindInvalidParams], but for Exists, which answers false.
// All methods may be used by many goroutines at once.
type API interface {
	// ReadFile returns a file as text. Bytes that are no UTF-8 are
	// [KindInvalidUTF8]; use ReadFileBuffer for them.
	ReadFile(ctx context.Context, path string, opts ReadOptions) (string, error)
	// ReadFileBuffer returns a file's bytes, or a part of them. A file over
	// [Limits.MaxBufferedBytes] is [KindTooLarge], anything but a regular
	// file [KindNotRegular] (a directory: [KindIsDirectory]).
	ReadFileBuffer(ctx context.Context, path string, opts ReadOptions) (FileContent, error)
	// WriteFile replaces a file, or makes it, as one step: a reader sees the
	// old content or the new, whole. Missing parents are made.
	WriteFile(ctx context.Context, path string, content []byte, opts WriteOptions) (WriteInfo, error)
	// Stat describes a path. What the backend does not know is absent.
	Stat(ctx context.Context, path string, opts StatOptions) (FileStat, error)
	// ReadDir lists a directory's names, sorted by bytes, whole or (with
	// Limit) in pages; never silently a part.
	ReadDir(ctx context.Context, path string, opts ReadDirOptions) (Listing, error)
	// Exists tells whether a path leads to something. A missing path, a
	// dangling link, a file in the way and a name that cannot be are false;
	// a directory that may not be searched is an error.
	Exists(ctx context.Context, path string, opts ExistsOptions) (bool, error)
	// Mkdir makes a directory, with Recursive its parents too (then an
	// existing directory is no error).
	Mkdir(ctx context.Context, path string, opts MkdirOptions) error
	// Rm removes a file, a link (never what it points at) or, with
	// Recursive, a directory tree.
	Rm(ctx context.Context, path string, opts RmOptions) error
	// Exec runs /bin/sh -c command and returns when it ended. Any exit code
	// is a result, a timeout too (124); an error means that the command did
	// not run, or was cancelled and its whole process tree is gone.
	Exec(ctx context.Context, command string, opts ExecOptions) (ShellResult, error)
	// ReadFileStream opens a file of any size. The context governs the whole
	// stream, not the open alone. The caller closes the stream.
	ReadFileStream(ctx context.Context, path string, opts ReadOptions) (*ReadStream, error)
	// WriteFileStream writes what r yields and returns when it stands under
	// its name. It makes no parents and never retries. r is not closed. An
	// error of r aborts the write; the old file is untouched.
	WriteFileStream(ctx context.Context, path string, r io.Reader, opts WriteOptions) (WriteInfo, error)
}

// Backend is what a server serves: [API], and files opened for a pump that
// moves their bytes itself.
type Backend interface {
	API
	// Info tells what this sandbox is and can do.
	Info(ctx context.Context) (Info, error)
	// OpenRead opens a file for reading. Cancelling ctx ends the open, and
	// the source afterwards as well. The caller closes the source.
	OpenRead(ctx context.Context, path string, opts ReadOptions) (Source, error)
	// OpenWrite opens a new version of a file; nothing is visible under the
	// name before Commit. The caller ends the sink with Commit or Abort.
	// Cancelling ctx before the commit aborts it.
	OpenWrite(ctx context.Context, path string, opts WriteOptions) (Sink, error)
}

// Source is a file opened for reading, one range of it.
type Source interface {
	// Size is the whole file's size in bytes; false where it is not known.
	Size() (int64, bool)
	// Length is how many bytes Reader will yield; false where not known.
	Length() (int64, bool)
	// ETag names the version that was opened.
	ETag() string
	// Reader yields the bytes: the *os.File itself or the bare net.Conn
	// where there is one, so that a pump can use sendfile or splice. Where
	// Length is known, read no more than that; else read to io.EOF.
	Reader() io.Reader
	// Finish is called once, when sent bytes were taken from Reader, and
	// tells whether they are the file: an error of kind [KindChanged] when it
	// shrank or (with IfMatch) changed, else what is known of it.
	Finish(sent int64) (ReadVerdict, error)
	// Close releases everything. It may be called at any time, also twice.
	Close() error
}

// Sink is a new version of a file that is being written.
type Sink interface {
	// Writer takes the bytes: the *os.File itself or the bare net.Conn where
	// there is one.
	Writer() io.Writer
	// Commit makes exactly c.Bytes bytes visible under the name, at once and
	// whole. Another count than was written is [KindTruncated]. After an
	// error the sink is aborted. Cancelling ctx before the rename aborts.
	Commit(ctx context.Context, c Commit) (WriteInfo, error)
	// Abort drops everything; the old file is untouched. It returns the
	// error that ended the write where the far end named one, else cause.
	// It may be called at any time, also twice and after Commit.
	Abort(cause error) error
}
