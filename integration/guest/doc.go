// Package guest boots Linux in an emulated machine, for tests that need one of
// their own: to pull its plug, to set its clock, to have what the kernel at
// hand lacks. The machine runs the program of the folder inside as its first
// process, which does what its role says and reports it on the console.
//
// It needs QEMU and Debian's cloud kernel, no /dev/kvm. What does not belong
// here: anything that works without a machine of its own.
package guest
