package rpc

import (
	"context"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/controld/controld/sandbox"
)

// Hello introduces the client. It is the first call; afterwards the server's
// limits bind. Its errors are those of the protocol: unauthenticated,
// unsupported with the versions the server speaks, unavailable. When ctx ends
// first the connection ends at once: who does not wait for hello has no use for
// it.
func (c *Conn) Hello(ctx context.Context, p HelloParams) (HelloResult, error) {
	var r HelloResult
	stop := context.AfterFunc(ctx, func() { c.shut(context.Cause(ctx)) })
	err := c.do(context.WithoutCancel(ctx), MethodHello, "", &p, &r)
	if !stop() {
		err = withOutcome(sandbox.Cancelled(ctx, MethodHello, ""), sandbox.OutcomeNone)
	}
	if err != nil {
		return HelloResult{}, err
	}
	if most := r.Info.Limits.MaxMessageBytes; most > 0 {
		if c.opts.MostMessageBytes > 0 {
			most = min(most, c.opts.MostMessageBytes)
		}
		c.most.Store(most)
	}
	return r, nil
}

// Ping asks for a sign of life.
func (c *Conn) Ping(ctx context.Context) error {
	return c.do(ctx, MethodPing, "", nil, dropped{})
}

// ReadFile reads a file into memory. With opts.InlineMax a longer content
// comes as a transfer instead.
func (c *Conn) ReadFile(ctx context.Context, path string, opts sandbox.ReadOptions) (ReadResult, error) {
	var r ReadResult
	err := c.do(ctx, MethodReadFile, path, &ReadParams{Path: path, Options: opts}, &r)
	if err == nil {
		err = r.fits(path, opts)
	}
	if err != nil {
		return ReadResult{}, err
	}
	return r, nil
}

// WriteFile replaces a file. content is not kept.
func (c *Conn) WriteFile(ctx context.Context, path string, content []byte, opts sandbox.WriteOptions) (sandbox.WriteInfo, error) {
	var r WriteResult
	err := c.do(ctx, MethodWriteFile, path, &WriteParams{Path: path, Content: content, Options: opts}, &r)
	if err == nil && r.Info.Bytes != int64(len(content)) {
		err = contradiction(MethodWriteFile, path, "it wrote another number of bytes than it was given")
	}
	if err != nil {
		return sandbox.WriteInfo{}, err
	}
	return r.Info, nil
}

// Stat describes a path.
func (c *Conn) Stat(ctx context.Context, path string, opts sandbox.StatOptions) (sandbox.FileStat, error) {
	var r StatResult
	err := c.do(ctx, MethodStat, path, &StatParams{Path: path, Options: opts}, &r)
	return r.Stat, err
}

// ReadDir lists a directory. A name that is none, or that was not asked for, is
// of kind internal.
func (c *Conn) ReadDir(ctx context.Context, path string, opts sandbox.ReadDirOptions) (sandbox.Listing, error) {
	var r ReadDirResult
	if err := c.do(ctx, MethodReadDir, path, &ReadDirParams{Path: path, Options: opts}, &r); err != nil {
		return sandbox.Listing{}, err
	}
	if err := CheckNames(path, r.Listing.Names); err != nil {
		return sandbox.Listing{}, err
	}
	if err := r.fits(path, opts); err != nil {
		return sandbox.Listing{}, err
	}
	return r.Listing, nil
}

// CheckNames refuses a listing whose names could lead out of its directory:
// they come from a machine that is not trusted.
func CheckNames(path string, names []string) error {
	for _, name := range names {
		if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\x00") {
			return &sandbox.Error{Kind: sandbox.KindInternal, Op: MethodReadDir, Path: path,
				Outcome: sandbox.OutcomeNone, Message: "the sandbox named an entry that is no name"}
		}
	}
	return nil
}

// Exists tells whether a path leads to something.
func (c *Conn) Exists(ctx context.Context, path string, opts sandbox.ExistsOptions) (bool, error) {
	var r ExistsResult
	err := c.do(ctx, MethodExists, path, &ExistsParams{Path: path, Options: opts}, &r)
	return r.Exists, err
}

// Mkdir makes a directory.
func (c *Conn) Mkdir(ctx context.Context, path string, opts sandbox.MkdirOptions) error {
	return c.do(ctx, MethodMkdir, path, &MkdirParams{Path: path, Options: opts}, done{})
}

// Rm removes a path.
func (c *Conn) Rm(ctx context.Context, path string, opts sandbox.RmOptions) error {
	return c.do(ctx, MethodRm, path, &RmParams{Path: path, Options: opts}, done{})
}

// Exec runs a command. A command or an environment that is no UTF-8 cannot
// travel and is of kind invalid_params.
func (c *Conn) Exec(ctx context.Context, command string, opts sandbox.ExecOptions) (sandbox.ShellResult, error) {
	whole := utf8.ValidString(command)
	for name, value := range opts.Env {
		whole = whole && utf8.ValidString(name) && utf8.ValidString(value)
	}
	if !whole {
		return sandbox.ShellResult{}, &sandbox.Error{Kind: sandbox.KindInvalidParams, Op: MethodExec,
			Message: "the command or its environment is no UTF-8"}
	}
	var r ExecResult
	err := c.do(ctx, MethodExec, "", &ExecParams{Command: command, Options: opts}, &r)
	if err == nil {
		err = r.fits(opts)
	}
	if err != nil {
		return sandbox.ShellResult{}, err
	}
	return r.Shell, nil
}

// ReadFileStream mints a read transfer.
func (c *Conn) ReadFileStream(ctx context.Context, path string, opts sandbox.ReadOptions) (StreamResult, error) {
	var r StreamResult
	err := c.do(ctx, MethodReadFileStream, path, NewReadStreamParams(path, opts), &r)
	if err == nil {
		err = r.fits(path, opts)
	}
	return r, err
}

// ReadFileStreamAside mints a read transfer and calls aside, whose work costs
// no time of its own, between the request and the wait for its answer. The
// context of aside ends when the call has failed.
func (c *Conn) ReadFileStreamAside(ctx context.Context, path string, opts sandbox.ReadOptions, aside func(context.Context)) (StreamResult, error) {
	const method = MethodReadFileStream
	within, cancel := context.WithCancel(ctx)
	defer cancel()
	var r StreamResult
	cl := &call{result: &r, done: make(chan struct{}, 1), failed: cancel}
	id, err := c.submit(ctx, cl, method, path, NewReadStreamParams(path, opts))
	if err != nil {
		return StreamResult{}, err
	}
	aside(within)
	if err = c.await(ctx, id, cl, method, path); err == nil {
		err = r.fits(path, opts)
	}
	return r, err
}

// WriteFileStream mints a write transfer.
func (c *Conn) WriteFileStream(ctx context.Context, path string, opts sandbox.WriteOptions) (Transfer, error) {
	var r StreamResult
	err := c.do(ctx, MethodWriteFileStream, path, NewWriteStreamParams(path, opts), &r)
	return r.Transfer, err
}

// TransferResult waits for the end of a transfer.
func (c *Conn) TransferResult(ctx context.Context, id string) (VerdictResult, error) {
	var r VerdictResult
	err := c.do(ctx, MethodTransferResult, "", &TransferParams{ID: id}, &r)
	return r, err
}

// AskResult asks for the end of a transfer and does not wait: then gets what
// TransferResult would return, once. It runs on the goroutine that reads the
// connection, which it must not hold up, or on the caller's where the
// connection has ended. Who needs no answer any more calls giveUp: else one that
// never comes is waited for as long as the connection lives.
func (c *Conn) AskResult(id string, then func(VerdictResult, error)) (giveUp func()) {
	r := &VerdictResult{}
	return c.start(MethodTransferResult, "", &TransferParams{ID: id}, r, func(err error) { then(*r, err) })
}

// TransferCommit makes the bytes of a write visible.
func (c *Conn) TransferCommit(ctx context.Context, id string, commit sandbox.Commit) (VerdictResult, error) {
	var r VerdictResult
	err := c.do(ctx, MethodTransferCommit, "", &CommitParams{ID: id, Commit: commit}, &r)
	if err == nil && r.Bytes != commit.Bytes {
		err = contradiction(MethodTransferCommit, "", "it committed another number of bytes than it was told")
	}
	if err != nil {
		return VerdictResult{}, err
	}
	return r, nil
}

// TransferAbort drops a transfer.
func (c *Conn) TransferAbort(ctx context.Context, id string) error {
	return c.do(ctx, MethodTransferAbort, "", &TransferParams{ID: id}, dropped{})
}

// SandboxList lists the sandboxes that the token covers, by name.
func (c *Conn) SandboxList(ctx context.Context) ([]sandbox.Status, error) {
	var r SandboxListResult
	err := c.do(ctx, MethodSandboxList, "", &Empty{}, &r)
	return r.Sandboxes, err
}

// SandboxInfo tells of a sandbox; an empty name is that of hello.
func (c *Conn) SandboxInfo(ctx context.Context, name string) (sandbox.Status, error) {
	var r SandboxResult
	err := c.do(ctx, MethodSandboxInfo, "", &SandboxParams{Sandbox: name}, &r)
	return r.Status, err
}

// SandboxCreate starts a sandbox that does not run, and waits for it.
func (c *Conn) SandboxCreate(ctx context.Context, name string) (sandbox.Status, error) {
	var r SandboxResult
	err := c.do(ctx, MethodSandboxCreate, "", &SandboxParams{Sandbox: name}, &r)
	return r.Status, err
}

// SandboxRemove ends a sandbox, and with files removes its directory.
func (c *Conn) SandboxRemove(ctx context.Context, name string, files bool) error {
	return c.do(ctx, MethodSandboxRemove, "", &SandboxRemoveParams{Sandbox: name, Files: files}, dropped{})
}

// SandboxExtend has a sandbox live for at least so long from now on, as far as
// the daemon lets it.
func (c *Conn) SandboxExtend(ctx context.Context, name string, least time.Duration) (sandbox.Status, error) {
	var r SandboxResult
	err := c.do(ctx, MethodSandboxExtend, "", &SandboxExtendParams{Sandbox: name, For: least}, &r)
	return r.Status, err
}

// SandboxPause stops all processes of a sandbox until SandboxResume.
func (c *Conn) SandboxPause(ctx context.Context, name string) (sandbox.Status, error) {
	var r SandboxResult
	err := c.do(ctx, MethodSandboxPause, "", &SandboxParams{Sandbox: name}, &r)
	return r.Status, err
}

// SandboxResume has them go on.
func (c *Conn) SandboxResume(ctx context.Context, name string) (sandbox.Status, error) {
	var r SandboxResult
	err := c.do(ctx, MethodSandboxResume, "", &SandboxParams{Sandbox: name}, &r)
	return r.Status, err
}
