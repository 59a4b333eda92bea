package jinja

import (
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxIntBits bounds the integers that a template can compute, so that
// 9**9**9 cannot take the machine. Python stops printing them long before
// (4300 digits, maxIntDigits).
const (
	maxIntBits   = 1 << 16
	maxIntDigits = 4300
)

// normalInt returns i as int64 where it fits.
func normalInt(i *big.Int) Value {
	if i.IsInt64() {
		return i.Int64()
	}
	if i.BitLen() > maxIntBits {
		exceeded(ErrMemory)
	}
	return i
}

// number is an operand of arithmetic: an int (small or big) or a float.
type number struct {
	big     *big.Int // set: an int beyond int64
	i       int64
	f       float64
	isFloat bool
}

// asNumber reads bool, int and float.
func asNumber(v Value) (number, bool) {
	switch v := v.(type) {
	case bool:
		if v {
			return number{i: 1}, true
		}
		return number{}, true
	case int64:
		return number{i: v}, true
	case float64:
		return number{f: v, isFloat: true}, true
	case *big.Int:
		return number{big: v}, true
	}
	return number{}, false
}

// words is the size of the number, in words of 64 bits.
func (n number) words() int {
	if n.big == nil {
		return 1
	}
	return n.big.BitLen()/64 + 1
}

func (n number) int() *big.Int {
	if n.big != nil {
		return n.big
	}
	return big.NewInt(n.i)
}

func (n number) float() float64 {
	switch {
	case n.isFloat:
		return n.f
	case n.big != nil:
		f, _ := new(big.Float).SetInt(n.big).Float64()
		if math.IsInf(f, 0) {
			raise("OverflowError", "int too large to convert to float")
		}
		return f
	}
	return float64(n.i)
}

// compareNumbers returns -1, 0 or 1 as Python orders a and b, which compares
// ints and floats exactly; ordered is false if one is NaN.
func compareNumbers(a, b number) (order int, ordered bool) {
	if !a.isFloat && !b.isFloat {
		if a.big == nil && b.big == nil {
			switch {
			case a.i < b.i:
				return -1, true
			case a.i > b.i:
				return 1, true
			}
			return 0, true
		}
		return a.int().Cmp(b.int()), true
	}
	if a.isFloat && b.isFloat {
		switch {
		case a.f < b.f:
			return -1, true
		case a.f > b.f:
			return 1, true
		}
		return 0, a.f == b.f
	}
	if !a.isFloat {
		order, ordered = compareNumbers(b, a)
		return -order, ordered
	}
	switch {
	case math.IsNaN(a.f):
		return 0, false
	case math.IsInf(a.f, 0):
		if a.f > 0 {
			return 1, true
		}
		return -1, true
	}
	return big.NewFloat(a.f).Cmp(new(big.Float).SetInt(b.int())), true
}

// arithmetic computes a op b for numbers, as Python does.
func arithmetic(op operator, a, b number) Value {
	if a.isFloat || b.isFloat {
		return floatArithmetic(op, a.float(), b.float())
	}
	if a.big == nil && b.big == nil {
		if v, ok := smallArithmetic(op, a.i, b.i); ok {
			return v
		}
	}
	x, y := a.int(), b.int()
	switch op {
	case opAdd:
		return normalInt(new(big.Int).Add(x, y))
	case opSub:
		return normalInt(new(big.Int).Sub(x, y))
	case opMul:
		return normalInt(new(big.Int).Mul(x, y))
	case opDiv:
		if y.Sign() == 0 {
			raise("ZeroDivisionError", "division by zero")
		}
		f, _ := new(big.Rat).SetFrac(x, y).Float64()
		if math.IsInf(f, 0) {
			raise("OverflowError", "integer division result too large for a float")
		}
		return f
	case opFloorDiv, opMod:
		if y.Sign() == 0 {
			raise("ZeroDivisionError", "integer division or modulo by zero")
		}
		q, r := new(big.Int).QuoRem(x, y, new(big.Int))
		if r.Sign() != 0 && r.Sign() != y.Sign() { // Python rounds down, Go towards zero
			q.Sub(q, big.NewInt(1))
			r.Add(r, y)
		}
		if op == opMod {
			return normalInt(r)
		}
		return normalInt(q)
	default: // opPow
		if y.Sign() < 0 {
			return floatArithmetic(op, a.float(), b.float())
		}
		if x.BitLen() > 1 && (!y.IsInt64() || y.Int64() > maxIntBits || int64(x.BitLen()-1)*y.Int64() > maxIntBits) {
			exceeded(ErrMemory)
		}
		return normalInt(new(big.Int).Exp(x, y, nil))
	}
}

// smallArithmetic is the common case, without allocation; ok is false if the
// result may not fit.
func smallArithmetic(op operator, i, j int64) (v Value, ok bool) {
	switch op {
	case opAdd:
		s := i + j
		return s, (s > i) == (j > 0)
	case opSub:
		d := i - j
		return d, (d < i) == (j > 0)
	case opMul:
		if i == 0 || j == 0 {
			return int64(0), true
		}
		p := i * j
		return p, p/j == i && !(i == -1 && j == math.MinInt64) && !(j == -1 && i == math.MinInt64)
	case opDiv:
		const exact = 1 << 53 // beyond, one rounding is not enough
		if j != 0 && i > -exact && i < exact && j > -exact && j < exact {
			return float64(i) / float64(j), true
		}
	case opFloorDiv, opMod:
		if j == 0 || i == math.MinInt64 && j == -1 {
			return nil, false
		}
		q, r := i/j, i%j
		if r != 0 && (r < 0) != (j < 0) {
			q--
			r += j
		}
		if op == opMod {
			return r, true
		}
		return q, true
	}
	return nil, false
}

func floatArithmetic(op operator, x, y float64) Value {
	switch op {
	case opAdd:
		return x + y
	case opSub:
		return x - y
	case opMul:
		return x * y
	case opPow:
		if x == 0 && y < 0 {
			raise("ZeroDivisionError", "0.0 cannot be raised to a negative power")
		}
		if x < 0 && y != math.Trunc(y) && !math.IsNaN(y) {
			raise("TypeError", "complex numbers are not supported")
		}
		p := floatPower(x, y)
		if math.IsInf(p, 0) && !math.IsInf(x, 0) && !math.IsInf(y, 0) {
			raise("OverflowError", "Numerical result out of range")
		}
		return p
	}
	if y == 0 {
		raise("ZeroDivisionError", "float division by zero")
	}
	switch op {
	case opDiv:
		return x / y
	case opFloorDiv:
		r := floatMod(x, y)
		q := (x - r) / y
		if q == 0 {
			return math.Copysign(0, x/y)
		}
		f := math.Floor(q)
		if q-f > 0.5 {
			f++
		}
		return f
	default: // opMod
		return floatMod(x, y)
	}
}

// floatPower is x**y, for whole exponents to the last bit, which math.Pow is
// not.
func floatPower(x, y float64) float64 {
	const most = 1 << 20
	if x == 0 || y == 0 || y != math.Trunc(y) || math.Abs(y) > most || math.IsNaN(x) || math.IsInf(x, 0) {
		return math.Pow(x, y)
	}
	const precision = 200
	power := new(big.Float).SetPrec(precision).SetInt64(1)
	base := new(big.Float).SetPrec(precision).SetFloat64(x)
	for n := int(math.Abs(y)); n > 0; n >>= 1 {
		if n&1 != 0 {
			power.Mul(power, base)
		}
		base.Mul(base, base)
	}
	if y < 0 {
		power.Quo(new(big.Float).SetPrec(precision).SetInt64(1), power)
	}
	f, _ := power.Float64()
	return f
}

// floatMod has the sign of y, as in Python.
func floatMod(x, y float64) float64 {
	r := math.Mod(x, y)
	if r == 0 {
		return math.Copysign(0, y)
	}
	if (r < 0) != (y < 0) {
		r += y
	}
	return r
}

// parseInt reads what Python's int(s, base) reads: spaces around, a sign,
// underscores between digits.
func parseInt(s string, base int) (Value, bool) {
	t := asciiDigits(strings.TrimFunc(s, isSpace))
	neg := false
	if t != "" && (t[0] == '-' || t[0] == '+') {
		neg = t[0] == '-'
		t = t[1:]
	}
	if len(t) > 1 && t[0] == '0' {
		prefix := map[byte]int{'x': 16, 'o': 8, 'b': 2}[t[1]|0x20]
		if prefix != 0 && prefix == base {
			t = strings.TrimPrefix(t[2:], "_")
		}
	}
	if t == "" || t[0] == '_' || t[len(t)-1] == '_' || strings.Contains(t, "__") || t[0] == '-' || t[0] == '+' {
		return nil, false
	}
	t = strings.ReplaceAll(t, "_", "")
	if len(t) > maxIntDigits {
		return nil, false
	}
	i, ok := new(big.Int).SetString(t, base)
	if !ok {
		return nil, false
	}
	if neg {
		i.Neg(i)
	}
	return normalInt(i), true
}

// truncate is Python's int(float).
func truncate(f float64) Value {
	if math.Abs(f) < 1<<62 {
		return int64(f)
	}
	i, _ := big.NewFloat(f).Int(nil)
	return normalInt(i)
}

// parseFloat reads what Python's float(s) reads, which unlike Go has no hex.
func parseFloat(s string) (float64, bool) {
	t := asciiDigits(strings.TrimFunc(s, isSpace))
	if bare := strings.TrimLeft(t, "+-"); len(t)-len(bare) < 2 && strings.EqualFold(bare, "nan") {
		return math.NaN(), true
	}
	if strings.ContainsAny(t, "xXpP") || strings.HasPrefix(t, "_") || strings.HasSuffix(t, "_") || strings.Contains(t, "__") {
		return 0, false
	}
	f, err := strconv.ParseFloat(strings.ReplaceAll(t, "_", ""), 64)
	if err != nil && !math.IsInf(f, 0) {
		return 0, false
	}
	return f, true
}

// asciiDigits replaces the decimal digits of other scripts, which Python's int
// and float read.
func asciiDigits(s string) string {
	if isASCII(s) {
		return s
	}
	return strings.Map(func(r rune) rune {
		if r < utf8.RuneSelf || !unicode.Is(unicode.Nd, r) {
			return r
		}
		// Ranges of decimal digits start with a zero and hold whole tens.
		for _, n := range unicode.Nd.R16 {
			if rune(n.Lo) <= r && r <= rune(n.Hi) {
				return '0' + (r-rune(n.Lo))%10
			}
		}
		for _, n := range unicode.Nd.R32 {
			if rune(n.Lo) <= r && r <= rune(n.Hi) {
				return '0' + (r-rune(n.Lo))%10
			}
		}
		return r
	}, s)
}
