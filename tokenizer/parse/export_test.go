package parse

// Looked is how many bytes a parser has searched, some of them again.
func Looked(p Parser) int {
	switch p := p.(type) {
	case *tagged:
		return p.reader.looked
	case *harmony:
		return p.reader.looked
	}
	panic("parse: a parser that counts nothing")
}
