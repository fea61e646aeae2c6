package epair

// State is how an end is. A greater one is worse.
type State int32

// The states of an end.
const (
	Up   State = iota // frames pass
	Down              // set down, or without a carrier; may come up again
	Gone              // deleted, or its namespace was
)

// String returns the state as `show` prints it.
func (s State) String() string {
	switch s {
	case Up:
		return "up"
	case Down:
		return "down"
	}
	return "gone"
}
