// SPDX-License-Identifier: Apache-2.0
#include "hone/data/story_text.h"

namespace hone::data {

// docs/story-grammar.md defines the notation.
const std::string_view kStoryText = R"GRAMMAR(
domain gender: name
  girl
  boy

domain person: name, kind, he, him, his
  Lily, girl, she, her, her
  Mia, girl, she, her, her
  Anna, girl, she, her, her
  Zoe, girl, she, her, her
  Tom, boy, he, him, his
  Ben, boy, he, him, his
  Max, boy, he, him, his
  Sam, boy, he, him, his

domain color: a, plain
  a red, red
  a blue, blue
  a green, green
  a yellow, yellow

domain toy: name, do, did
  ball, bounce it, bounced it
  kite, fly it, flew it
  boat, sail it, sailed it
  drum, tap it, tapped it
  book, read it, read it
  bell, ring it, rang it

domain weather: name, wear, view
  sunny, sandals, fair
  windy, scarf, rough
  rainy, boots, rough
  snowy, gloves, rough

domain time: name, end
  morning, lunch
  afternoon, dinner
  evening, bed

domain place: name, at, spot, look
  park, in the park, under a bench, green
  beach, on the beach, behind a big rock, water
  forest, in the forest, under an old oak, green
  lake, by the lake, beside a small boat, water
  market, at the market, under a table, busy

domain relative: name, she, her
  mother, she, her
  father, he, him
  sister, she, her
  brother, he, him

domain trait: a, plain
  a kind, kind
  a wise, wise
  an old, old
  a gentle, gentle

domain animal: name, call, moved
  dog, barked, ran
  cat, purred, walked
  bird, sang, flew
  rabbit, squeaked, hopped
  duck, quacked, waddled
  owl, hooted, flew

domain high: into, the
  into a tall tree, tree
  onto a high roof, roof
  over a stone wall, wall

domain tool: a, plain
  a long stick, stick
  a ladder, ladder
  a rope, rope

domain food: some, plain
  some cake, cake
  some soup, soup
  a warm pie, pie
  some bread, bread

slot sex: gender
slot hero: person where kind = sex
slot color: color
slot toy: toy
slot weather: weather
slot time: time
slot place: place
slot rel: relative
slot friend: person where name != hero
slot trait: trait
slot animal: animal
slot high: high
slot tool: tool
slot food: food

rule story
  <open> <owns> <outing>(3* <view:weather.view>|) <plot> <close>

rule open
  5* Once upon a time, there was a (5*little|2*young|2*kind|cheerful|curious|quiet) {sex!} named \
      {hero!}.
  3* {hero!} was a (5*little|2*young|2*kind|cheerful|curious|quiet) {hero.kind}.
  2* There once was a (2*happy|shy|clever) {sex!} called {hero!}.
  Long ago, in a land (2*far away|of green hills), there was a {sex!} named {hero!}.

rule owns
  4* {hero} had {color!} {toy!}, and {hero.he} (4*loved|2*liked) to {toy.do} (4*every day|2*all \
      day long|2*before breakfast|after school|in the yard).
  3* The best thing {hero.he} (3*had|2*owned) was {color!} {toy!}.( {Hero.he} (2*loved|liked) to \
      {toy.do}.|)
  2* For {hero.his} birthday, {hero.he} got {color!} {toy!}.( "I will {toy.do} every day," said \
      {hero}.|)

rule outing
  4* One {weather!} {time!}, {hero} went to the {place!} with {hero.his} {rel!}. <take>
  3* One {weather!} {time!}, {hero} and {hero.his} {rel!} (3*walked|rode|ran) to the {place!}. \
      <take>
  2* It was a {weather!} {time!}, and {hero.his} {rel!} took {hero.him} to the {place!}. <take>

rule take
  3* {Hero.he} (3*took|2*carried|2*brought) the {color.plain} {toy} (3*along|with {hero.him}).
  2* {Hero.he} wore {hero.his} (3*new|2*old|2*soft|favorite) {weather.wear} and carried the {toy}.
  {Hero.he} took {hero.his} {weather.wear} and the {color.plain} {toy}.

rule view.fair
  3* <look:place.look>
  2* <sky:weather.name>
rule view.rough
  <sky:weather.name>

rule sky.sunny
  2* The sun was (3*warm|2*golden|high in the sky).
  The sky was (2*blue|clear) and (2*the air was warm|birds sang).
rule sky.windy
  2* The wind (2*blew|sang) in the trees.
  Leaves (2*danced|flew|turned) in the (2*wind|air).
rule sky.rainy
  2* Rain fell on the (2*road|roofs).
  There were (2*big|deep|little) puddles (2*all around|on the road).
rule sky.snowy
  2* The snow was (2*soft|deep|bright).
  Snow fell (2*from the sky|on every roof).
rule look.green
  3* The grass (2*was soft|smelled sweet|was full of flowers) {place.at}.
  2* (2*White|Pink|Tiny) flowers grew (2*everywhere|along the path|under the trees).
  (2*Bees|Butterflies) were (2*busy|dancing) {place.at}.
rule look.water
  3* The water was (2*calm|cool|shiny).
  2* (2*Little|Gentle|Quick) waves (2*rolled|splashed) over the (2*stones|sand).
  (2*White|Gray) birds were (2*resting|calling) {place.at}.
rule look.busy
  3* Many people were (2*working|talking) {place.at}.
  2* There was a lot (2*to see|of noise) {place.at}.
  (2*A man|An old woman|A boy) was selling (2*eggs|flowers|honey) {place.at}.

rule plot
  5* <lost>
  4* <stuck>
  5* <share>
  5* <needy>
  4* <gift>

rule lost
  <gone> (<sad>|<search>) <helper> <talk> <found> <thanks>

rule gone
  3* {hero} wanted to {toy.do}, but the {color.plain} {toy} was (3*gone|not there).
  2* (2*Soon|After a while), {hero.he} saw that the {color.plain} {toy} was gone.
  Then the {toy} was gone!

rule sad
  3* {hero} was (3*very|so) (3*sad|2*upset|unhappy).
  2* {Hero.he} (2*began|started) to cry.
  {Hero.he} (2*sat down|stood still) and (2*felt sad|wanted to cry|did not know what to do).
  "Oh no," said {hero}, "my {toy}!"

rule search
  3* {Hero.he} looked (3*everywhere|2*high and low|here and there), but {hero.he} could not find \
      it.
  2* {Hero.he} and {hero.his} {rel} looked (2*for a long time|and looked).
  "Where (2*is it now|can it be)?" {hero.he} asked.

rule helper
  3* Just then, {trait!} {animal!} came by.
  2* {Trait!} {animal!} {animal.moved} up to {hero}.
  2* (2*Near the road|On the path|After some time), {hero.he} met {trait!} {animal!}.

rule talk
  3* "Why are you (3*sad|crying), {hero}?" asked the {animal}. "I can not find my {toy}," \
      {hero.he} said. <offer>
  2* "Please help me find my {color.plain} {toy}," said {hero}. <offer>

rule offer
  3* "Do not (3*worry|2*cry|be sad)," said the {trait.plain} {animal}. "(3*I will help you|2*We \
      can look together|Let us find it)."
  2* The {trait.plain} {animal} {animal.call} and (2*nodded|thought about it).

rule found
  3* They looked (3*together|2*everywhere|again and again), and they found the {color.plain} \
      {toy} {place.spot}.
  3* The {animal} {animal.moved} ahead, and there was the {toy}, {place.spot}.
  2* (2*At last|Suddenly|Then), {hero} saw something {color.plain} {place.spot}. It was the {toy}!

rule thanks
  3* "Thank you, {animal}!" said {hero}. <friends>
  2* {hero} (2*hugged|thanked) the {animal}. <friends>

rule friends
  3* From that day on, {hero} and the {animal} were (3*friends|best friends).
  2* The {animal} {animal.call} and {animal.moved} away.
  {hero} gave the {animal} {food!}, and the {animal} ate the {food.plain}.

rule stuck
  <blown> <reach> <rescue> <praise>

rule blown
  3* A (3*strong|2*big|sudden) wind came and (2*blew|took|carried) the {color.plain} {toy} {high!}.
  2* {hero} threw the {toy} too (2*high|hard), and it went {high!}.
  A naughty monkey took the {color.plain} {toy} and threw it {high!}.

rule reach
  3* {hero} (2*jumped|climbed), but the {high.the} was too (2*high|tall) for {hero.him}.
  2* {Hero.he} (2*tried and tried|stood on {hero.his} toes), but {hero.he} could not reach the \
      top of the {high.the}.

rule rescue
  4* Then {hero.his} {rel} (2*found|got) {tool!}. With the {tool.plain}, {rel.she} \
      (2*got|brought) the {color.plain} {toy} (2*back|down from the {high.the}).
  3* "I (2*will help you|have an idea)," said {hero.his} {rel}. {Rel.she} used {tool!}, and the \
      {tool.plain} (2*was just long enough|worked well).

rule praise
  3* "You are (2*so smart|the best)!" said {hero}. {Hero.he} (2*kissed|hugged) {hero.his} {rel}.
  2* {hero} (2*laughed|clapped|danced) and (2*thanked|hugged) {rel.her}.
  After that, {hero} stayed away from the {high.the}.

rule share
  <meet> <ask> <refuse> <think> <give>

rule meet
  3* {Hero.he} met {hero.his} friend {friend!} {place.at}.
  2* {Hero.his} friend {friend!} was there, too.
  {Hero.he} saw {friend!}, who was (2*all alone|sitting in the shade|looking for someone to play \
      with).

rule ask
  3* {friend} (2*looked at|liked) the {color.plain} {toy}. "Can I {toy.do}, (2*please|{hero})?" \
      asked {friend}.
  2* {friend} wanted to {toy.do}, too.

rule refuse
  3* "No, it is my {toy}!" said {hero}. {friend} (2*was sad|looked down|walked away).
  2* But {hero} (2*did not want to share|held on to the {toy}). {friend} (2*was sad|looked \
      down|walked away).

rule think
  3* {Hero.his} {rel} said, "(2*It is good to share|Friends share their toys), {hero}."
  2* {hero} saw the face of {friend} and felt (3*bad|2*sorry|ashamed).

rule give
  3* So {hero} gave the {color.plain} {toy} to {friend}. "I am sorry, {friend}," {hero.he} \
      said. <together>
  2* "You can have a turn, {friend}," said {hero}. <together>

rule together
  3* {friend} {toy.did} and (3*laughed|2*smiled|shouted with joy).
  2* {hero} and {friend} {toy.did} together until {time.end}.
  {friend} was happy, and {hero} was happy, too.

rule needy
  <hears> <hides> <care> <after>

rule hears
  3* {hero} was about to {toy.do} when {hero.he} heard a (3*small|2*strange|sad|soft) sound.
  2* Suddenly, {hero} (2*heard a cry|saw something move).
  {hero} put down the {color.plain} {toy} and listened.

rule hides
  A (3*tiny|2*little|2*lost|baby) {animal!} was (3*sitting|2*hiding|lying) {place.spot}. <need>

rule need
  3* It was (2*hungry|thin). {hero} gave it {food!}. The {animal} ate (2*all of|most of) the \
      {food.plain}.
  2* It was (2*cold|shaking). {hero} (2*wrapped|put) {hero.his} blanket around the {animal}.
  2* It was (2*scared|afraid). {hero} (2*sang a song|spoke softly), and the {animal} came \
      (2*closer|out).
  It had a hurt leg. {Hero.his} {rel} (2*washed it|tied a cloth around it), and {hero} held the \
      {animal}.

rule care
  3* "(2*You are safe now|Do not be afraid), little {animal}," {hero.he} said.
  2* Soon, the {animal} felt better and {animal.call}.

rule after
  3* "Can we (2*keep it|take it home)?" asked {hero}. {Hero.his} {rel} (2*smiled and said \
      yes|nodded). The {animal} slept beside the {color.plain} {toy}.
  2* Then its mother came, and the little {animal} {animal.moved} to her. "Goodbye, {animal}!" \
      said {hero}.
  The {animal} {animal.moved} behind {hero} all the way home.

rule gift
  <party> <none> <idea> <present> <joy>

rule party
  3* {Hero.he} saw {friend!} and remembered that it was {friend}'s birthday.
  2* {Hero.his} friend {friend!} was having a party {place.at}.

rule none
  3* But {hero} had no (2*gift|present) for {friend}.
  2* "What can I give to {friend}?" {hero.he} asked {hero.his} {rel}.

rule idea
  3* {Hero.he} looked at the {color.plain} {toy} and had an idea.
  2* "Give something you (2*love|made), {hero}," said {hero.his} {rel}.

rule present
  3* {hero} put the {color.plain} {toy} in a (2*box|bag) and gave it to {friend}.
  2* "This {toy} is for you, {friend}," said {hero}.

rule joy
  3* "It is (2*the best gift of all|just what I wanted)!" said {friend}. They ate {food!} \
      together, and the {food.plain} was (2*sweet|good).
  2* {friend} (2*jumped for joy|hugged {hero}|laughed out loud) and {toy.did} right away.

rule close
  3* <home>
  2* <lesson>
  2* <home> <lesson>

rule home
  3* Before {time.end}, {hero} and {hero.his} {rel} went (2*home|back home).
  2* When they were (2*home|back home), {hero} told {hero.his} {rel} (3*a story|2*good \
      night|about the {toy}).
  That night, {hero} (3*slept well|2*had sweet dreams|dreamed of the {color.plain} {toy}) in \
      {hero.his} bed.

rule lesson
  3* {hero} was (3*happy|2*glad|proud) and (3*smiled|2*laughed|sang) for a long time.
  2* It was (2*a good day|the best {time}|a day full of surprises) for {hero}.
  2* And {hero} (2*never forgot|always remembered) that {weather} {time} {place.at}.
)GRAMMAR";

}  // namespace hone::data
