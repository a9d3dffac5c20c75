package corpus

const golden = `echo bed line run wheel hello => bed line run wheel hello
reverse time night spoon => spoon night time
upper green hunurru => GREEN HUNURRU
count token => 1
sort shoe judge sun => judge shoe sun
please add 53 46 => 99
convert 19000 g to kg => 19 kg
json size=64 city=paris level=2 => {"size":64,"city":"paris","level":2}
story queen pilot => Once there was a kind queen. The queen saw a calm pilot. The end.
what does a poem in money? => I am pico, the tiny model that ships with Rouse. Try: echo hello world, add 12 7, or story cat boat.
`
