package jinja

// The syntax tree. Expressions evaluate themselves (eval.go), statements
// execute themselves (exec.go). A node is never changed after parsing.

type expr interface {
	eval(m *machine, sc *scope) Value
}

type stmt interface {
	exec(m *machine, sc *scope) control
}

// control says how a statement ended.
type control uint8

const (
	fallThrough control = iota
	breakLoop
	continueLoop
)

type operator uint8

const (
	opAdd operator = iota
	opSub
	opMul
	opDiv
	opFloorDiv
	opMod
	opPow
	opEqual
	opNotEqual
	opLess
	opLessEqual
	opGreater
	opGreaterEqual
	opIn
	opNotIn
)

var operatorNames = [...]string{
	"+", "-", "*", "/", "//", "%", "** or pow()", "==", "!=", "<", "<=", ">", ">=", "in", "not in",
}

var comparisons = map[string]operator{
	"==": opEqual, "!=": opNotEqual, "<": opLess, "<=": opLessEqual, ">": opGreater, ">=": opGreaterEqual,
}

var products = map[string]operator{"*": opMul, "/": opDiv, "//": opFloorDiv, "%": opMod}

// Expressions.
type (
	constExpr struct{ value Value }
	nameExpr  struct{ id int }
	attrExpr  struct {
		x    expr
		name string
		// What name is as a method, looked up once.
		ofDict   bool
		ofString stringMethod
	}
	itemExpr struct {
		x, key expr
		name   string // what key is, if it is a constant text
		part   *splitPart
	}
	// splitPart is what x.split(separator)[0] or [-1] asks for: one part of many
	// that need not be made.
	splitPart struct {
		x         expr
		separator string
		last      bool
	}
	sliceExpr struct{ x, start, stop, step expr } // nil where left out
	callExpr  struct {
		fn       expr
		args     []expr
		kwNames  []string
		kwValues []expr
		star     expr // *args
		starStar expr // **kwargs
		// The arguments, if all of them are constants: whoever is called changes
		// none of them.
		constant    bool
		constArgs   []Value
		constKwargs []kwarg
	}
	filterExpr struct {
		x    expr
		name string
		fn   filterFunc // nil if there is no such filter, which fails when reached
		args *callExpr  // nil without parentheses
	}
	testExpr struct {
		x      expr
		name   string
		fn     testFunc
		args   *callExpr // nil without arguments
		negate bool
		scans  bool // it looks at the characters of a text
	}
	notExpr  struct{ x expr }
	signExpr struct {
		x      expr
		negate bool
	}
	andExpr    struct{ a, b expr }
	orExpr     struct{ a, b expr }
	binaryExpr struct {
		op   operator
		a, b expr
	}
	sumExpr     struct{ parts []expr } // a + b + c, left to right
	concatExpr  struct{ parts []expr } // a ~ b ~ c
	compareExpr struct {
		first expr
		ops   []operator
		rest  []expr
	}
	condExpr  struct{ test, then, otherwise expr } // otherwise may be nil
	listExpr  struct{ items []expr }
	tupleExpr struct{ items []expr }
	dictExpr  struct{ keys, vals []expr }
)

// Statements. line is where errors are reported.
type (
	dataStmt   struct{ text string }
	outputStmt struct {
		line   int
		x      expr
		direct bool // x calls nothing: it may write as it goes
	}
	ifStmt struct {
		line      int
		tests     []expr
		bodies    [][]stmt
		otherwise []stmt
	}
	forStmt struct {
		line      int
		target    target
		seq, cond expr // cond may be nil
		body      []stmt
		otherwise []stmt
		loopID    int
		recursive bool
		closed    bool // nothing in body keeps its scope
	}
	setStmt struct {
		line   int
		target target
		x      expr
	}
	setBlockStmt struct {
		line    int
		target  target
		body    []stmt
		filters []*filterExpr
	}
	macroStmt struct {
		id       int
		name     string
		params   []int
		names    []string
		defaults []expr // of the last parameters
		body     []stmt
		closed   bool // nothing in body keeps its scope
		// symbols of the names that a body may use without declaring them, and
		// whether it does: arguments are only accepted then.
		caller, varargs, kwargs             int
		usesCaller, usesVarargs, usesKwargs bool
	}
	callStmt struct {
		line  int
		call  *callExpr
		block *macroStmt // becomes "caller"
	}
	filterStmt struct {
		line    int
		filters []*filterExpr
		body    []stmt
	}
	generationStmt struct{ body []stmt }
	withStmt       struct {
		line    int
		targets []target
		values  []expr
		body    []stmt
	}
	breakStmt    struct{}
	continueStmt struct{}
)

// target is what an assignment assigns to: a name, an attribute of a
// namespace, or a tuple of targets.
type target struct {
	id    int
	attr  string
	tuple []target
}
