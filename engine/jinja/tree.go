package jinja

// The tree of a template. Each expression that can fail carries its line.

type expr any

type (
	constant struct{ value any }
	nameExpr struct {
		name string
		line int
	}
	listExpr  struct{ items []expr }
	tupleExpr struct{ items []expr }
	dictExpr  struct {
		keys, values []expr
		line         int
	}
	condExpr   struct{ test, then, otherwise expr } // otherwise may be nil
	andExpr    struct{ left, right expr }
	orExpr     struct{ left, right expr }
	notExpr    struct{ of expr }
	binaryExpr struct {
		op          string
		left, right expr
		line        int
	}
	signExpr struct {
		op   string
		of   expr
		line int
	}
	concatExpr  struct{ items []expr }
	compareExpr struct {
		first expr
		ops   []string
		with  []expr
		line  int
	}
	attrExpr struct {
		of   expr
		name string
		line int
	}
	itemExpr struct {
		of, index expr
		line      int
	}
	sliceExpr struct {
		of, from, to, by expr // but for of, each may be nil
		line             int
	}
	callExpr struct {
		of   expr
		args callArgs
		line int
	}
	filterExpr struct {
		of   expr // nil: the text of a filter or set block
		name string
		run  *routine
		args callArgs
		line int
	}
	testExpr struct {
		of   expr
		name string
		run  *routine
		args callArgs
		line int
	}
)

// callArgs are the arguments of a call.
type callArgs struct {
	args   []expr
	names  []string // of the keyword arguments
	values []expr
	star   expr // *args; nil for none
}

type stmt any

type (
	textStmt   struct{ text string }
	outputStmt struct {
		of   expr
		line int
	}
	ifStmt struct {
		tests  []expr
		bodies [][]stmt // one more than tests where there is an else
		lines  []int
	}
	forStmt struct {
		target    target
		iter      expr
		test      expr // nil for none
		body      []stmt
		otherwise []stmt
		line      int
	}
	setStmt struct {
		target target
		value  expr
		line   int
	}
	setBlockStmt struct {
		target  target
		filters []*filterExpr
		body    []stmt
		line    int
	}
	filterStmt struct {
		filters []*filterExpr
		body    []stmt
	}
	macroStmt struct{ macro *macroDef }
	callStmt  struct {
		caller *macroDef
		call   *callExpr
	}
	generationStmt struct{ body []stmt }
	breakStmt      struct{}
	continueStmt   struct{}
)

// target is what can be assigned to: a *nameTarget, a *tupleTarget or a *fieldTarget.
type target any

type (
	nameTarget  struct{ name string }
	tupleTarget struct{ items []target }
	fieldTarget struct{ name, field string } // of a namespace
)

// macroDef is a macro or the body of a call block.
type macroDef struct {
	name     string // "" for a call block's body
	params   []string
	defaults []expr // of the last params
	body     []stmt

	varargs, kwargs, caller bool // the body mentions them
}
