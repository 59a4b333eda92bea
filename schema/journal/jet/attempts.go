package jet

import "fmt"

// attempts says how often the entries after a group's position have been
// delivered: those up to a position are about to be for the count-th time. It is
// kept in the consumer's metadata, as the server forgets its own count when it
// is rewound. All entries that a member held when it went are counted together,
// so an entry's count is never too low, and is too high where it stood behind
// one that came more often.
type attempts struct {
	upTo  uint64
	count int
}

const metaAttempts = "tl.attempts"

func readAttempts(metadata map[string]string) (a attempts) {
	if _, err := fmt.Sscanf(metadata[metaAttempts], "%d:%d", &a.upTo, &a.count); err != nil {
		return attempts{}
	}
	return a
}

func (a attempts) write(metadata map[string]string) {
	metadata[metaAttempts] = fmt.Sprintf("%d:%d", a.upTo, a.count)
}

// of is the number of the delivery that a position is about to have.
func (a attempts) of(position uint64) int {
	if position <= a.upTo {
		return a.count
	}
	return 1
}

// next is the state when the entries after position, up to given, are about to
// be delivered again.
func (a attempts) next(position, given uint64) attempts {
	switch {
	case given <= position:
		return a
	case a.upTo > position:
		return attempts{max(a.upTo, given), a.count + 1}
	default:
		return attempts{given, 2}
	}
}
