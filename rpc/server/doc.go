// Package server serves any [sandbox.Backend] on the wire: it accepts
// connections, tells control from data by the first byte, authenticates
// through a [Host], bounds what a connection and a tenant may hold, and turns
// each call into one call of the backend.
//
// What does not belong here: the wire's bytes (package rpc), who may come in
// and where sandboxes are (the Host), the life of a transfer (package
// transfer) and its pumps (package dataport).
package server
