package sandbox

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"strconv"
	"strings"
	"sync"
)

// maxSlug is the longest readable part of a session's directory name.
const maxSlug = 150

// Segment returns the directory name of a session's storage key, one path
// component. Two keys never share one: bytes outside [a-z0-9] become '_' and
// two hex digits, and what is cut off a long key is stood for by its SHA-256.
// The tail, djb2 of the key in base 36, tells look-alikes apart at a glance.
func Segment(key string) string {
	const digits = "0123456789abcdef"
	var b strings.Builder
	for i := range len(key) {
		c := key[i]
		if c >= 'a' && c <= 'z' || c >= '0' && c <= '9' {
			b.WriteByte(c)
			continue
		}
		b.WriteByte('_')
		b.WriteByte(digits[c>>4])
		b.WriteByte(digits[c&15])
	}
	slug := b.String()
	if len(slug) > maxSlug {
		sum := sha256.Sum256([]byte(key))
		slug = slug[:maxSlug] + hex.EncodeToString(sum[:8])
	}
	return slug + "-" + strconv.FormatUint(uint64(djb2(key)), 36)
}

func djb2(s string) uint32 {
	h := uint32(5381)
	for i := range len(s) {
		h = h*33 + uint32(s[i])
	}
	return h
}

// SessionEnv is the view of one agent session on a shared [API]: relative
// paths, and commands, start at the session's own directory. The directory is
// made before the first call of any kind, once; when that fails the call fails
// and the next one tries again. Absolute paths pass unchanged: sessions are
// separated by directory, not confined. Who wants them confined gives Scope.
type SessionEnv struct {
	api API
	cwd string

	mu   sync.Mutex
	made *attempt // the mkdir that runs or that succeeded
}

var _ API = (*SessionEnv)(nil)

// attempt is work that several callers wait for.
type attempt struct {
	done chan struct{}
	err  error
}

// NewSessionEnv returns the view of the session with the given storage key;
// its directory is Segment(key) below base, a path of api.
func NewSessionEnv(api API, base, key string) *SessionEnv {
	return &SessionEnv{api: api, cwd: join(base, Segment(key))}
}

// Cwd is the session's directory, as a path of the shared API.
func (s *SessionEnv) Cwd() string { return s.cwd }

// ready waits until the session's directory stands. The mkdir runs on a
// context of its own: a caller that gives up ends its own waiting alone.
func (s *SessionEnv) ready(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return Cancelled(ctx, "mkdir", s.cwd)
	}
	s.mu.Lock()
	try := s.made
	if try == nil {
		try = &attempt{done: make(chan struct{})}
		s.made = try
		go s.makeCwd(context.WithoutCancel(ctx), try)
	}
	s.mu.Unlock()
	select {
	case <-try.done:
		return try.err
	case <-ctx.Done():
		return Cancelled(ctx, "mkdir", s.cwd)
	}
}

func (s *SessionEnv) makeCwd(ctx context.Context, try *attempt) {
	try.err = s.api.Mkdir(ctx, s.cwd, MkdirOptions{Recursive: true})
	if try.err != nil {
		s.mu.Lock()
		s.made = nil
		s.mu.Unlock()
	}
	close(try.done)
}

// place returns path and scope as the shared API knows them.
func (s *SessionEnv) place(path, scope string) (string, string) {
	if scope != "" {
		return path, join(s.cwd, scope)
	}
	if path == "" {
		return path, "" // refused below, whatever the session
	}
	return join(s.cwd, path), ""
}

// join puts a relative path below dir. Nothing is cleaned: ".." means what the
// file system says it means.
func join(dir, path string) string {
	if strings.HasPrefix(path, "/") || dir == "" {
		return path
	}
	if strings.HasSuffix(dir, "/") {
		return dir + path
	}
	return dir + "/" + path
}

// ReadFile implements [API].
func (s *SessionEnv) ReadFile(ctx context.Context, path string, opts ReadOptions) (string, error) {
	if err := s.ready(ctx); err != nil {
		return "", err
	}
	path, opts.Scope = s.place(path, opts.Scope)
	return s.api.ReadFile(ctx, path, opts)
}

// ReadFileBuffer implements [API].
func (s *SessionEnv) ReadFileBuffer(ctx context.Context, path string, opts ReadOptions) (FileContent, error) {
	if err := s.ready(ctx); err != nil {
		return FileContent{}, err
	}
	path, opts.Scope = s.place(path, opts.Scope)
	return s.api.ReadFileBuffer(ctx, path, opts)
}

// WriteFile implements [API].
func (s *SessionEnv) WriteFile(ctx context.Context, path string, content []byte, opts WriteOptions) (WriteInfo, error) {
	if err := s.ready(ctx); err != nil {
		return WriteInfo{}, err
	}
	path, opts.Scope = s.place(path, opts.Scope)
	return s.api.WriteFile(ctx, path, content, opts)
}

// Stat implements [API].
func (s *SessionEnv) Stat(ctx context.Context, path string, opts StatOptions) (FileStat, error) {
	if err := s.ready(ctx); err != nil {
		return FileStat{}, err
	}
	path, opts.Scope = s.place(path, opts.Scope)
	return s.api.Stat(ctx, path, opts)
}

// ReadDir implements [API].
func (s *SessionEnv) ReadDir(ctx context.Context, path string, opts ReadDirOptions) (Listing, error) {
	if err := s.ready(ctx); err != nil {
		return Listing{}, err
	}
	path, opts.Scope = s.place(path, opts.Scope)
	return s.api.ReadDir(ctx, path, opts)
}

// Exists implements [API].
func (s *SessionEnv) Exists(ctx context.Context, path string, opts ExistsOptions) (bool, error) {
	if err := s.ready(ctx); err != nil {
		return false, err
	}
	path, opts.Scope = s.place(path, opts.Scope)
	return s.api.Exists(ctx, path, opts)
}

// Mkdir implements [API].
func (s *SessionEnv) Mkdir(ctx context.Context, path string, opts MkdirOptions) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	path, opts.Scope = s.place(path, opts.Scope)
	return s.api.Mkdir(ctx, path, opts)
}

// Rm implements [API].
func (s *SessionEnv) Rm(ctx context.Context, path string, opts RmOptions) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	path, opts.Scope = s.place(path, opts.Scope)
	return s.api.Rm(ctx, path, opts)
}

// Exec implements [API].
func (s *SessionEnv) Exec(ctx context.Context, command string, opts ExecOptions) (ShellResult, error) {
	if err := s.ready(ctx); err != nil {
		return ShellResult{}, err
	}
	if opts.Cwd == "" {
		opts.Cwd = s.cwd
	} else {
		opts.Cwd = join(s.cwd, opts.Cwd)
	}
	return s.api.Exec(ctx, command, opts)
}

// ReadFileStream implements [API].
func (s *SessionEnv) ReadFileStream(ctx context.Context, path string, opts ReadOptions) (*ReadStream, error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	path, opts.Scope = s.place(path, opts.Scope)
	return s.api.ReadFileStream(ctx, path, opts)
}

// WriteFileStream implements [API].
func (s *SessionEnv) WriteFileStream(ctx context.Context, path string, r io.Reader, opts WriteOptions) (WriteInfo, error) {
	if err := s.ready(ctx); err != nil {
		return WriteInfo{}, err
	}
	path, opts.Scope = s.place(path, opts.Scope)
	return s.api.WriteFileStream(ctx, path, r, opts)
}
