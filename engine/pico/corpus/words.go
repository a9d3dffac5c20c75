package corpus

import "strings"

// Words is the word list of the copying skills (echo, reverse, upper, count, sort).
var Words = strings.Fields(`
	alpha beta gamma delta omega kilo lima mike nova oscar papa romeo sierra tango
	red blue green black white gold pink gray
	one two three four five six seven eight nine ten
	apple pear plum lemon bread milk salt rice soup cake egg tea
	sun moon star sky rain snow wind fire sea lake river hill rock sand
	day night hour week year spring winter
	hand foot head eye ear nose back
	door wall roof room bed table chair desk cup plate spoon
	coat hat shoe sock ring bag box key pen book page map card
	road street bridge gate park farm field garden
	car bus train ship plane wheel
	king queen knight judge baker pilot nurse
	run walk jump sing dance read write draw cook sleep wake
	big small hot cold old new fast slow soft hard
	iron wood stone glass paper wool
	hello world data code test model token time line point north south east west`)

// Names and Items are values for json prompts; Keys are their keys.
var (
	Names = strings.Fields(`alice bob carol dave erin frank grace heidi ivan judy`)
	Items = strings.Fields(`lamp book chair bread coat ring map spoon apple key`)
	Keys  = strings.Fields(`name item color city unit state kind owner`)
	// NumberKeys take numbers, which JSON writes without quotes.
	NumberKeys = strings.Fields(`age size count price year level`)
)

var keyValues = map[string][]string{
	"name":  Names,
	"owner": Names,
	"item":  Items,
	"color": strings.Fields(`red blue green black white gold pink gray`),
	"city":  strings.Fields(`paris rome oslo cairo lima tokyo`),
	"unit":  strings.Fields(`km kg cm day hour week`),
	"state": strings.Fields(`new old hot cold open closed`),
	"kind":  strings.Fields(`tea milk wood iron wool paper`),
}

// noun is a thing in stories: what it is like, where it lives and what it loves to do.
type noun struct{ name, like, home, joy string }

var nouns = []noun{
	{"cat", "quiet", "house", "sleep"}, {"dog", "loud", "garden", "run"}, {"bird", "small", "tree", "sing"},
	{"fish", "shy", "lake", "swim"}, {"horse", "fast", "field", "jump"}, {"cow", "slow", "farm", "eat"},
	{"goat", "brave", "hill", "climb"}, {"fox", "clever", "forest", "hide"}, {"bear", "big", "cave", "dream"},
	{"frog", "green", "pond", "jump"}, {"mouse", "tiny", "barn", "hide"}, {"owl", "wise", "tower", "read"},
	{"boat", "red", "river", "float"}, {"train", "long", "valley", "roll"}, {"lamp", "bright", "room", "shine"},
	{"tree", "tall", "park", "grow"}, {"robot", "shiny", "factory", "count"}, {"king", "rich", "castle", "laugh"},
	{"queen", "kind", "palace", "dance"}, {"baker", "happy", "village", "cook"}, {"pilot", "calm", "city", "fly"},
	{"wizard", "old", "tower", "write"}, {"rabbit", "soft", "meadow", "run"}, {"whale", "huge", "sea", "swim"},
}

func nounOf(name string) (noun, bool) {
	for _, n := range nouns {
		if n.name == name {
			return n, true
		}
	}
	return noun{}, false
}

var (
	askers = strings.Fields(`what why how when where who`)
	verbs  = strings.Fields(`is was does can will did should would could`)
	topics = strings.Fields(`capital weather price meaning history name color size age reason music
		movie game city country river mountain planet language animal doctor lawyer poem recipe
		president team phone computer school teacher ocean letter number answer question`)
	places = strings.Fields(`france spain china mars europe america london paris tokyo space winter summer
		school heaven history football chess physics english python java money love`)
	orders = strings.Fields(`write explain tell show give find play open buy send translate summarize
		describe compare list solve prove draw call make`)
)
