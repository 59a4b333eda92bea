package chat

import (
	"fmt"
	"strings"
	"time"
)

// Strftime formats a time as Python's datetime.strftime does in the C locale
// on Linux. What it does not know it copies, as glibc does.
func Strftime(t time.Time, format string) string {
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(format, "%")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		pad := byte(0)
		directive := rest
		if directive != "" && strings.IndexByte("-_0^", directive[0]) >= 0 {
			pad, directive = directive[0], directive[1:]
		}
		if directive == "" {
			b.WriteString("%" + rest)
			return b.String()
		}
		text, ok := expand(t, directive[0], pad)
		if !ok {
			text = "%" + rest[:len(rest)-len(directive)+1]
		}
		b.WriteString(text)
		format = directive[1:]
	}
}

// layouts are directives that Go has a layout for.
var layouts = map[byte]string{
	'a': "Mon", 'A': "Monday", 'b': "Jan", 'h': "Jan", 'B': "January",
	'c': "Mon Jan _2 15:04:05 2006", 'D': "01/02/06", 'x': "01/02/06", 'F': "2006-01-02",
	'p': "PM", 'r': "03:04:05 PM", 'R': "15:04", 'T': "15:04:05", 'X': "15:04:05",
}

func expand(t time.Time, directive, pad byte) (string, bool) {
	if layout, ok := layouts[directive]; ok {
		s := t.Format(layout)
		if pad == '^' {
			s = strings.ToUpper(s)
		}
		return s, true
	}
	number := func(n, width int, fill byte) (string, bool) {
		switch pad {
		case '-':
			return fmt.Sprint(n), true
		case '_':
			fill = ' '
		case '0':
			fill = '0'
		}
		if fill == ' ' {
			return fmt.Sprintf("%*d", width, n), true
		}
		return fmt.Sprintf("%0*d", width, n), true
	}
	hour12 := (t.Hour()+11)%12 + 1
	isoYear, isoWeek := t.ISOWeek()
	weekday := int(t.Weekday())
	switch directive {
	case 'C':
		return number(t.Year()/100, 2, '0')
	case 'd':
		return number(t.Day(), 2, '0')
	case 'e':
		return number(t.Day(), 2, ' ')
	case 'f':
		return fmt.Sprintf("%06d", t.Nanosecond()/1000), true
	case 'g':
		return number(isoYear%100, 2, '0')
	case 'G':
		return fmt.Sprint(isoYear), true
	case 'H':
		return number(t.Hour(), 2, '0')
	case 'I':
		return number(hour12, 2, '0')
	case 'j':
		return number(t.YearDay(), 3, '0')
	case 'k':
		return number(t.Hour(), 2, ' ')
	case 'l':
		return number(hour12, 2, ' ')
	case 'm':
		return number(int(t.Month()), 2, '0')
	case 'M':
		return number(t.Minute(), 2, '0')
	case 'n':
		return "\n", true
	case 'P':
		return strings.ToLower(t.Format("PM")), true
	case 's':
		return fmt.Sprint(t.Unix()), true
	case 'S':
		return number(t.Second(), 2, '0')
	case 't':
		return "\t", true
	case 'u':
		return fmt.Sprint((weekday+6)%7 + 1), true
	case 'U':
		return number((t.YearDay()+6-weekday)/7, 2, '0')
	case 'V':
		return number(isoWeek, 2, '0')
	case 'w':
		return fmt.Sprint(weekday), true
	case 'W':
		return number((t.YearDay()+6-(weekday+6)%7)/7, 2, '0')
	case 'y':
		return number(t.Year()%100, 2, '0')
	case 'Y':
		return fmt.Sprint(t.Year()), true
	case 'z', 'Z':
		return "", true // transformers' time has no zone
	case '%':
		return "%", true
	}
	return "", false
}
