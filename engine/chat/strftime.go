package chat

import (
	"fmt"
	"strings"
	"time"
)

// strftimeLayouts maps the directives of C's strftime to Go's layouts.
var strftimeLayouts = map[byte]string{
	'a': "Mon", 'A': "Monday", 'b': "Jan", 'B': "January", 'h': "Jan", 'd': "02", 'e': "_2", 'H': "15", 'I': "03",
	'j': "002", 'm': "01", 'M': "04", 'p': "PM", 'S': "05", 'y': "06", 'Y': "2006", 'z': "-0700", 'Z': "MST",
	'D': "01/02/06", 'F': "2006-01-02", 'R': "15:04", 'T': "15:04:05", 'c': "Mon Jan _2 15:04:05 2006", 'x': "01/02/06", 'X': "15:04:05",
}

// strftime formats now as C's strftime in the C locale does.
func strftime(now time.Time, format string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' || i+1 == len(format) {
			b.WriteByte(format[i])
			continue
		}
		i++
		trim := format[i] == '-' && i+1 < len(format) // %-d: without leading zeros
		if trim {
			i++
		}
		switch layout, ok := strftimeLayouts[format[i]]; {
		case format[i] == '%':
			b.WriteByte('%')
		case ok && trim:
			s := strings.TrimLeft(now.Format(layout), "0 ")
			if s == "" {
				s = "0"
			}
			b.WriteString(s)
		case ok:
			b.WriteString(now.Format(layout))
		default:
			return "", fmt.Errorf("strftime_now: unknown directive %%%c", format[i])
		}
	}
	return b.String(), nil
}
