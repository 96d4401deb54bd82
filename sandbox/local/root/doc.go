// Package root turns the paths of callers into descriptors. A path without a
// scope is the machine's own; with a scope nothing is ever opened outside of
// the scope's directory, whatever links, "..", renames and races do.
//
// Everything it hands out is an O_PATH descriptor, of a thing or of the
// directory that holds a name: a caller looks at it, then reopens it or acts
// on the name beneath it, and no path is ever walked twice by text with a
// decision in between. The kernel walks where it has openat2(2); a walker of
// our own, one component at a time, takes its place where it has not.
//
// What does not belong here: reading, writing, removing, and the kinds of
// errors on the wire. The room answers with errnos and the few errors below.
package root
