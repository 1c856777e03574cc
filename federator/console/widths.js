// How many cells of a terminal a letter takes: none, one or two.

/** First and last of the ranges that are wide in East Asian typography. */
const WIDE = [
  [0x1100, 0x115f], [0x2e80, 0x303e], [0x3041, 0x33ff], [0x3400, 0x4dbf], [0x4e00, 0x9fff], [0xa000, 0xa4cf], [0xa960, 0xa97f], [0xac00, 0xd7a3],
  [0xf900, 0xfaff], [0xfe10, 0xfe19], [0xfe30, 0xfe6f], [0xff00, 0xff60], [0xffe0, 0xffe6], [0x16fe0, 0x18cff], [0x1b000, 0x1b2ff], [0x20000, 0x3fffd],
];
const EMOJI = /^\p{Emoji_Presentation}$/u;
const MARK = /^[\p{Mn}\p{Me}]$/u;
const UNSEEN = /^\p{Cf}$/u;

/** Whether it takes two cells. @param {number} code @param {string} letter */
export const isWide = (code, letter) => WIDE.some(([first = 0, last = 0]) => code >= first && code <= last) || (code >= 0x231a && EMOJI.test(letter));

/** Whether it goes onto the letter before. @param {string} letter */
export const combines = (letter) => MARK.test(letter);
/** Whether it cannot be seen, such as what turns the direction of text: a screen leaves it out. @param {string} letter */
export const isUnseen = (letter) => UNSEEN.test(letter);
