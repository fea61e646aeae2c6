// Package epair makes pairs: it creates their ends in network namespaces, keeps
// them as configured, says how they are, and removes them without a trace. It never
// sees a frame: others read and write the devices that an End names.
//
//	end    what Create makes                              what ports open
//	veth   inner side in the end's namespace, outer side
//	       in a private namespace of the Env              the outer side
//	tap    a TAP device in the end's namespace            its queue (TAPFD)
//	dev    nothing: the interface exists                  the interface itself
//
// The private namespace has no name and no address. It ends with the process, and every
// veth with it, so a crash leaves at most namespaces; the next Env removes or adopts those.
//
// Life of a pair:
//
//	Create   everything is made, outer sides up, inner sides down: no frame moves yet
//	(ports)  the caller opens its ports
//	Up       inner sides up, addresses set; returns when frames pass
//	Delete   all is removed, in reverse
//
// Nothing here keeps a namespace alive that its owner deletes: no descriptor or socket
// stays open in the namespace of a veth or tap end.
package epair
