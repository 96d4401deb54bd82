package sandbox

import "syscall"

// errnos lists the error numbers that have a kind of their own. What is not
// listed is KindInternal with its number's name.
var errnos = []struct {
	no   syscall.Errno
	name string
	kind Kind
}{
	{syscall.ENOENT, "ENOENT", KindNotFound},
	{syscall.EACCES, "EACCES", KindPermission},
	{syscall.EPERM, "EPERM", KindPermission},
	{syscall.EROFS, "EROFS", KindReadOnly},
	{syscall.EEXIST, "EEXIST", KindExists},
	{syscall.ENOTEMPTY, "ENOTEMPTY", KindNotEmpty},
	{syscall.EISDIR, "EISDIR", KindIsDirectory},
	{syscall.ENOTDIR, "ENOTDIR", KindNotDirectory},
	{syscall.ELOOP, "ELOOP", KindLoop},
	{syscall.ENAMETOOLONG, "ENAMETOOLONG", KindNameTooLong},
	{syscall.EXDEV, "EXDEV", KindCrossDevice},
	{syscall.EBUSY, "EBUSY", KindBusy},
	{syscall.ETXTBSY, "ETXTBSY", KindBusy},
	{syscall.ENOSPC, "ENOSPC", KindNoSpace},
	{syscall.EDQUOT, "EDQUOT", KindNoSpace},
	{syscall.EFBIG, "EFBIG", KindTooLarge},
	{syscall.E2BIG, "E2BIG", KindArgumentTooLong},
	{syscall.EMFILE, "EMFILE", KindResourceExhausted},
	{syscall.ENFILE, "ENFILE", KindResourceExhausted},
	{syscall.ENOMEM, "ENOMEM", KindResourceExhausted},
	{syscall.EAGAIN, "EAGAIN", KindResourceExhausted},
	{syscall.EINVAL, "EINVAL", KindInvalidParams},
	{syscall.ENXIO, "ENXIO", KindNotRegular},
	{syscall.ENODEV, "ENODEV", KindNotRegular},
	{syscall.EOPNOTSUPP, "EOPNOTSUPP", KindUnsupported},
	{syscall.ENOSYS, "ENOSYS", KindUnsupported},
	{syscall.EIO, "EIO", KindInternal},
	{syscall.ESTALE, "ESTALE", KindInternal},
	{syscall.ETIMEDOUT, "ETIMEDOUT", KindInternal},
	{syscall.EPIPE, "EPIPE", KindInternal},
	{syscall.ECONNRESET, "ECONNRESET", KindInternal},
	{syscall.ENOEXEC, "ENOEXEC", KindInternal},
	{syscall.EBADF, "EBADF", KindInternal},
	{syscall.EINTR, "EINTR", KindInternal},
	{syscall.EMLINK, "EMLINK", KindInternal},
	{syscall.EOVERFLOW, "EOVERFLOW", KindInternal},
}

// FromErrno returns the error of a system call. The kind follows from the
// number, see errno(3); one without a kind of its own is KindInternal.
func FromErrno(op, path string, no syscall.Errno) *Error {
	e := &Error{Op: op, Path: path, Err: no, Message: no.Error()}
	e.Kind = KindInternal
	for _, row := range errnos {
		if row.no == no {
			e.Kind, e.Errno = row.kind, row.name
			break
		}
	}
	if e.Kind == KindInternal {
		e.Outcome = OutcomeUnknown
	}
	return e
}

// errnoName returns what errors.Is takes a kind for when no number came
// along with it: the first of its row in the list.
func errnoName(k Kind) string {
	for _, row := range errnos {
		if row.kind == k && k != KindInternal && k != KindInvalidParams {
			return row.name
		}
	}
	return ""
}

// errnoNumber returns this platform's number of a symbolic name.
func errnoNumber(name string) (syscall.Errno, bool) {
	for _, row := range errnos {
		if row.name == name {
			return row.no, true
		}
	}
	return 0, false
}
