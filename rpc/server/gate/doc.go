// Package gate decides who may come in before anybody has authenticated: how
// many strangers are let in at once, in all and of one source, and how long a
// source is kept out that failed too often.
//
// What does not belong here: sockets and protocols. A connection is seen as
// something that has a source and can be closed.
package gate
