package dataport

import (
	"os"

	"golang.org/x/sys/unix"
)

// What a durable reception writes out while more comes in: pieces of
// behindWindow, once behindLeast has arrived. Below that the one fsync at the
// end is as fast and leaves the file in memory.
const (
	behindWindow = 8 << 20
	behindLeast  = 256 << 20
)

// behind writes a file to its disk behind the bytes that arrive, so that the
// fsync at the end has little left to do, see sync_file_range(2). It is no
// fsync: metadata and the disk's own cache are left to that.
type behind struct {
	file *os.File
	// begun is up to where writing out was started, settled up to where it
	// has ended and the pages were given up.
	begun, settled int64
}

// newBehind returns nil where w is no file.
func newBehind(w any) *behind {
	switch w := w.(type) {
	case *os.File:
		return &behind{file: w}
	case *Passed:
		return &behind{file: w.file}
	}
	return nil
}

// advance is told that total bytes have arrived. An error of the disk is
// reported here and must be kept: the kernel tells it once.
func (b *behind) advance(total int64) error {
	if b == nil || total < behindLeast {
		return nil
	}
	for total-b.begun >= behindWindow {
		fd := int(b.file.Fd())
		if err := unix.SyncFileRange(fd, b.begun, behindWindow, unix.SYNC_FILE_RANGE_WRITE); err != nil {
			return err
		}
		b.begun += behindWindow
		if b.begun-b.settled <= behindWindow {
			continue
		}
		const wait = unix.SYNC_FILE_RANGE_WAIT_BEFORE | unix.SYNC_FILE_RANGE_WRITE | unix.SYNC_FILE_RANGE_WAIT_AFTER
		if err := unix.SyncFileRange(fd, b.settled, behindWindow, wait); err != nil {
			return err
		}
		unix.Fadvise(fd, b.settled, behindWindow, unix.FADV_DONTNEED)
		b.settled += behindWindow
	}
	return nil
}
