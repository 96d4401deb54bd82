package sandbox

import "strconv"

// FileVersion is what tells one version of a regular file from another, as
// stat(2) gives it; times are nanoseconds since 1970.
type FileVersion struct {
	Dev, Ino, Nlink uint64
	Mode, UID, GID  uint32
	Size            int64
	Mtime, Ctime    int64
}

// ETag names the version of the content, the same wherever it is asked for on
// one machine: the file's number and size, and its time of writing.
func (v FileVersion) ETag() string {
	b := make([]byte, 0, 64)
	b = strconv.AppendUint(b, v.Dev, 16)
	b = append(b, '-')
	b = strconv.AppendUint(b, v.Ino, 16)
	b = append(b, '-')
	b = strconv.AppendInt(b, v.Size, 16)
	b = append(b, '-')
	b = strconv.AppendInt(b, v.Mtime, 16)
	return string(b)
}

// SameContent tells whether nothing speaks for a write between two looks at a
// file. A change of the inode alone is put down to one of its mode, owner or
// names where one of those did change, and to a writer that set the time of
// writing back where none did.
func (v FileVersion) SameContent(was FileVersion) bool {
	if v.Size != was.Size || v.Mtime != was.Mtime {
		return false
	}
	return v.Ctime == was.Ctime || v.Nlink != was.Nlink || v.Mode != was.Mode || v.UID != was.UID || v.GID != was.GID
}
