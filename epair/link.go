package epair

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/internal/caps"
	"github.com/epair-net/epair/internal/netns"
)

// open returns an rtnetlink handle of a namespace. It keeps the namespace alive until it's closed.
// Its socket waits in the runtime's poller, not in a thread.
func open(ns *netns.NS) (h *netlink.Handle, err error) {
	err = ns.Do(func() (err error) {
		h, err = netlink.NewHandle(unix.NETLINK_ROUTE)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("open netlink socket: %w", err)
	}
	return h, nil
}

// at is the link with that index, for requests that need no more of it.
func at(index int) netlink.Link {
	return &netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: index}}
}

// missing says whether an error means that there is no such link.
func missing(err error) bool {
	var nf netlink.LinkNotFoundError
	return errors.As(err, &nf) || errors.Is(err, unix.ENODEV)
}

// running says whether frames pass a link.
func running(a *netlink.LinkAttrs) bool {
	const all = unix.IFF_UP | unix.IFF_RUNNING | unix.IFF_LOWER_UP
	return a.RawFlags&all == all
}

// delLink deletes a link; that it's gone already is fine.
func delLink(h *netlink.Handle, index int) error {
	if err := h.LinkDel(at(index)); err != nil && !missing(err) {
		return err
	}
	return nil
}

// delGroup deletes all links of a group in one request: the kernel waits for
// its readers once, not once per link. No such link is fine.
//
// A group is a number that anyone may give to a link, so this is for the private namespace only.
func delGroup(ns *netns.NS, group uint32) error {
	return ns.Do(func() error {
		req := nl.NewNetlinkRequest(unix.RTM_DELLINK, unix.NLM_F_ACK)
		req.AddData(nl.NewIfInfomsg(unix.AF_UNSPEC))
		req.AddData(nl.NewRtAttr(unix.IFLA_GROUP, nl.Uint32Attr(group)))
		if _, err := req.Execute(unix.NETLINK_ROUTE, 0); err != nil && !missing(err) {
			return err
		}
		return nil
	})
}

// denied explains a refused link operation.
func denied(err error) error { return caps.Explain(err, caps.NetAdmin, caps.SysAdmin) }
