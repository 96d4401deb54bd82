//go:build linux

package local

import (
	"context"
	"sync"
)

// nameKey is a name in a directory, however it was reached.
type nameKey struct {
	dev, ino uint64
	name     string
}

// keyLocks is a lock for each name, there while somebody wants it.
type keyLocks struct {
	mu    sync.Mutex
	locks map[nameKey]*keyLock
}

type keyLock struct {
	free  chan struct{} // holds one token while nobody has the lock
	users int
}

// lock waits for the lock of a name, or the end of ctx.
func (l *keyLocks) lock(ctx context.Context, key nameKey) (unlock func(), err error) {
	l.mu.Lock()
	if l.locks == nil {
		l.locks = make(map[nameKey]*keyLock)
	}
	k := l.locks[key]
	if k == nil {
		k = &keyLock{free: make(chan struct{}, 1)}
		k.free <- struct{}{}
		l.locks[key] = k
	}
	k.users++
	l.mu.Unlock()
	select {
	case <-k.free:
		return func() { k.free <- struct{}{}; l.leave(key, k) }, nil
	case <-ctx.Done():
		l.leave(key, k)
		return nil, context.Cause(ctx)
	}
}

func (l *keyLocks) leave(key nameKey, k *keyLock) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if k.users--; k.users == 0 {
		delete(l.locks, key)
	}
}
