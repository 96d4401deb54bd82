package image

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
)

// DefaultMaxBytes is the most that an image's layers may hold together.
const DefaultMaxBytes = 64 << 30

// makeTimeout bounds the way from a name to a directory.
const makeTimeout = time.Hour

// unfinished begins the name of a root that is being made.
const unfinished = ".new-"

// Store keeps the roots of images in a directory. It is safe for concurrent
// use.
type Store struct {
	dir      string
	maxBytes int64
	flights  singleflight.Group
	ctx      context.Context
	cancel   context.CancelFunc

	mu     sync.Mutex
	closed bool
	making sync.WaitGroup
	known  map[string]string // what a tag or the state of a file stood for: a key
}

// ErrClosed is what a store that is closed says.
var ErrClosed = errors.New("the store of images is closed")

// NewStore opens a store in dir, which is made where it is missing, 0700, and is
// of one process at a time. What an earlier one had begun is removed. maxBytes
// bounds what an image's layers hold; 0 is [DefaultMaxBytes]. The caller closes
// it.
func NewStore(dir string, maxBytes int64) (*Store, error) {
	if maxBytes == 0 {
		maxBytes = DefaultMaxBytes
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	left, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range left {
		if strings.HasPrefix(e.Name(), unfinished) {
			if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
				return nil, err
			}
		}
	}
	s := &Store{dir: dir, maxBytes: maxBytes, known: map[string]string{}}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s, nil
}

// Close ends what is being made and waits for that. Roots stay. It returns nil.
func (s *Store) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.cancel()
	s.making.Wait()
	return nil
}

// Root returns the directory that holds what an image does, for reading alone.
// named is one of:
//
//   - an absolute path of a directory: itself, or where it is an OCI image
//     layout, its image
//   - an absolute path of a file: a tar as of "docker save", or of a whole file
//     system. It is read again when it has changed
//   - a reference such as registry/name@sha256:..., which is pulled where it is
//     not here yet. A tag stands for one image for as long as the store is open
//
// A caller whose context ends gives up waiting; what it waited for goes on, for
// the next one.
func (s *Store) Root(ctx context.Context, named string) (string, error) {
	answer := s.flights.DoChan(named, func() (any, error) { return s.rootOf(named) })
	select {
	case r := <-answer:
		if r.Err != nil {
			return "", fmt.Errorf("image %s: %w", named, r.Err)
		}
		return r.Val.(string), nil
	case <-ctx.Done():
		return "", fmt.Errorf("image %s: still being fetched and unpacked: %w", named, ctx.Err())
	}
}

// rootOf makes the root of an image where there is none yet.
func (s *Store) rootOf(named string) (string, error) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return "", ErrClosed
	}
	s.making.Add(1)
	s.mu.Unlock()
	defer s.making.Done()
	ctx, cancel := context.WithTimeout(s.ctx, makeTimeout)
	defer cancel()
	src, err := s.find(ctx, named)
	if err != nil {
		return "", err
	}
	if src.dir != "" {
		return src.dir, nil
	}
	root := filepath.Join(s.dir, src.key)
	if _, err := os.Stat(root); !errors.Is(err, fs.ErrNotExist) {
		return root, err
	}
	return root, s.make(ctx, src, root)
}

// make unpacks an image beside its place and moves it there once all of it is
// on the disk.
func (s *Store) make(ctx context.Context, src source, root string) (err error) {
	part, err := os.MkdirTemp(s.dir, unfinished)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(part)) }()
	// Whose programs may not go through this store's directory see a mount.
	if err := os.Chmod(part, 0o755); err != nil {
		return err
	}
	if err := s.unpack(ctx, src, part); err != nil {
		return err
	}
	if err := syncAll(part); err != nil {
		return err
	}
	// Another name of the same image may have been faster.
	if err := os.Rename(part, root); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return syncDir(s.dir)
}

// stoodFor returns the key that a tag or a file stood for before.
func (s *Store) stoodFor(what string) (string, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key, ok := s.known[what]
	return key, ok
}

func (s *Store) remember(what, key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known[what] = key
}
