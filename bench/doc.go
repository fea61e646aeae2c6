// Package bench measures what crosses a pair, with sockets like any user's:
// bulk TCP, small UDP datagrams, and request/response.
//
// All figures are taken at the far end: what was delivered, not what was sent.
// A socket belongs to the namespace in which it was created, whatever thread
// uses it later; only the creation runs inside.
package bench
